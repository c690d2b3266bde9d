"""What the README shows is what the code says."""

from pathlib import Path

from regionfed_flwr.cli import markdown_table

ROOT = Path(__file__).parent.parent


def test_configuration_table_is_the_generated_one():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, tail = readme.partition("<!-- the table is generated: regionfed config --markdown -->\n\n")
    assert tail.strip() == markdown_table().strip()


def test_linked_files_exist():
    import re

    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
