import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from regionfed_flwr.data.base import Glyph, UserSplits
from regionfed_flwr.data.femnist import CLASSES, FemnistFederation, FemnistSpec
from regionfed_flwr.data.femnist.similarity import even_groups
from regionfed_flwr.data.femnist.sources import load_writers
from regionfed_flwr.errors import RegionFedError

SMALL = FemnistSpec(seed=1, regions=3, users_per_region=4, samples_per_user=20, validation_fraction=0.15)


def everything(splits: UserSplits[Glyph]) -> list[Glyph]:
    return [*splits.train, *splits.validation, *splits.test]


def fingerprint(glyphs: list[Glyph]) -> Counter[tuple[bytes, int]]:
    return Counter((glyph.image.tobytes(), glyph.label) for glyph in glyphs)


def pictures(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return dark pictures, all different."""
    return np.random.default_rng(seed).integers(0, 100, (count, 28, 28), dtype=np.uint8)


class TestRendered:
    def test_regions_are_full_and_users_lie_in_their_order(self) -> None:
        for scheme in ("semantic", "geographic", "random", "adversarial"):
            federation = FemnistFederation(replace(SMALL, region_scheme=scheme))
            assert federation.region_of == (0,) * 4 + (1,) * 4 + (2,) * 4
            assert len(set(federation.region_names)) == 3
        assert federation.classes == CLASSES and len(CLASSES) == 62

    def test_user_depends_on_nothing_but_the_number(self) -> None:
        one, other = FemnistFederation(SMALL), FemnistFederation(SMALL)
        for user in range(12):
            one.user(user)
        for part, again in zip(vars(one.user(7)).values(), vars(other.user(7)).values(), strict=True):
            assert [g.label for g in part] == [g.label for g in again]
            assert all((g.image == h.image).all() for g, h in zip(part, again, strict=True))
        assert fingerprint(everything(one.user(7))) != fingerprint(everything(one.user(8)))
        reseeded = FemnistFederation(replace(SMALL, seed=2))
        assert fingerprint(everything(one.user(7))) != fingerprint(everything(reseeded.user(7)))

    def test_parts_have_their_shares(self) -> None:
        parts = FemnistFederation(SMALL).user(0)
        assert (len(parts.train), len(parts.validation), len(parts.test)) == (15, 3, 2)

    @pytest.mark.parametrize("samples", [1, 2, 3])
    def test_training_part_is_never_empty(self, samples: int) -> None:
        spec = replace(SMALL, samples_per_user=samples, validation_fraction=0.49, test_fraction=0.5)
        parts = FemnistFederation(spec).user(0)
        assert len(parts.train) >= 1
        assert len(everything(parts)) == samples

    def test_lower_alpha_is_more_skewed(self) -> None:
        def classes(alpha: float) -> float:
            spec = replace(SMALL, samples_per_user=100, dirichlet_alpha=alpha)
            federation = FemnistFederation(spec)
            return float(np.mean([len({g.label for g in everything(federation.user(u))}) for u in range(12)]))

        assert classes(0.1) < classes(1.0) < classes(10.0)

    def test_regions_group_similar_writers(self) -> None:
        def within(scheme: str) -> float:
            """Return the mean cosine similarity of two users of a region."""
            spec = replace(SMALL, samples_per_user=100, users_per_region=6, region_scheme=scheme)
            federation = FemnistFederation(spec)
            rows = [np.bincount([g.label for g in everything(federation.user(u))], minlength=62) for u in range(18)]
            unit = np.array([row / np.linalg.norm(row) for row in rows])
            same = np.equal.outer(federation.region_of, federation.region_of) & ~np.eye(18, dtype=bool)
            return float((unit @ unit.T)[same].mean())

        assert within("semantic") > max(within("random"), within("adversarial"))

    def test_one_user(self) -> None:
        federation = FemnistFederation(replace(SMALL, regions=1, users_per_region=1))
        assert federation.region_of == (0,)
        assert len(everything(federation.user(0))) == 20


def test_even_groups_find_equal_clusters() -> None:
    centres = np.eye(5, 62) * 100
    member = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 7))
    counts = (centres[member] + np.random.default_rng(1).integers(0, 5, (35, 62))).astype(int)
    groups = even_groups(counts, 5)
    assert len(set(zip(member.tolist(), groups.tolist(), strict=True))) == 5
    assert sorted(Counter(even_groups(counts, 4).tolist()).values()) == [8, 9, 9, 9]


def leaf_document(users: dict[str, tuple[npt.NDArray[np.uint8], list[int]]]) -> dict[str, Any]:
    """Return LEAF's form of white-on-black images: black on white, from 0 to 1."""
    data = {u: {"x": (1 - x.reshape(-1, 784) / 255).tolist(), "y": y} for u, (x, y) in users.items()}
    return {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}


class TestLeaf:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        x = pictures(40)
        users = {f"f{w:04}_07": (x[10 * w : 10 * w + 10], list(range(w, w + 10))) for w in range(4)}
        names = list(users)
        for number, part in enumerate((names[:2], names[2:])):
            document = leaf_document({name: users[name] for name in part})
            (tmp_path / f"all_data_{number}.json").write_text(json.dumps(document))
        return tmp_path

    def test_images_come_back_inverted_and_none_is_lost(self, folder: Path) -> None:
        spec = FemnistSpec(regions=2, users_per_region=2, path=str(folder))
        federation = FemnistFederation(spec)
        found = sum((fingerprint(everything(federation.user(user))) for user in range(4)), Counter())
        labels = [y for w in range(4) for y in range(w, w + 10)]
        assert found == Counter((x.tobytes(), y) for x, y in zip(pictures(40), labels, strict=True))

    def test_cap_on_samples_takes_a_fixed_random_part(self, folder: Path) -> None:
        spec = FemnistSpec(regions=2, users_per_region=2, path=str(folder), samples_per_user=4)
        first, second = (everything(FemnistFederation(spec).user(1)) for _ in range(2))
        whole = everything(FemnistFederation(replace(spec, samples_per_user=99)).user(1))
        assert len(first) == 4 and len(whole) == 10
        assert fingerprint(first) == fingerprint(second)
        assert not fingerprint(first) - fingerprint(whole)

    def test_writers_are_drawn_by_the_seed(self, folder: Path) -> None:
        def labels(seed: int) -> set[int]:
            federation = FemnistFederation(FemnistSpec(seed=seed, regions=1, users_per_region=1, path=str(folder)))
            return {g.label for g in everything(federation.user(0))}

        assert labels(0) == labels(0)
        assert len({frozenset(labels(seed)) for seed in range(12)}) == 4

    def test_user_in_two_files_keeps_all_samples(self, tmp_path: Path) -> None:
        for number in range(2):
            document = leaf_document({"ann": (pictures(3, number), [1, 2, 3]), "nobody": (pictures(0), [])})
            (tmp_path / f"{number}.json").write_text(json.dumps(document))
        writers = load_writers(str(tmp_path))
        assert writers.class_counts.sum(axis=1).tolist() == [6]
        np.testing.assert_array_equal(writers.read(0)[0], np.concatenate([pictures(3, 0), pictures(3, 1)]))

    def test_too_few_writers(self, folder: Path) -> None:
        with pytest.raises(RegionFedError, match=r"4 writers.*need 15"):
            FemnistFederation(FemnistSpec(regions=5, users_per_region=3, path=str(folder)))

    @pytest.mark.parametrize(
        ("spoil", "sentence"),
        [
            (lambda d: d.pop("users"), "no list 'users'"),
            (lambda d: d.update(num_samples=3), "no list 'num_samples'"),
            (lambda d: d["num_samples"].append(1), "names 1 users but 2"),
            (lambda d: d["user_data"].pop("ann"), "user 'ann': user_data must hold"),
            (lambda d: d["user_data"]["ann"].pop("y"), "user 'ann'.* lists x and y"),
            (lambda d: d["user_data"]["ann"]["y"].pop(), "user 'ann': x has 3 samples, y has 2"),
            (lambda d: d.update(num_samples=[4]), "num_samples says 4"),
            (lambda d: d["user_data"]["ann"]["x"][1].pop(), "user 'ann'.*784 numbers"),
            (lambda d: [row.pop() for row in d["user_data"]["ann"]["x"]], "user 'ann'.*784 numbers"),
            (lambda d: d["user_data"]["ann"]["x"][0].__setitem__(5, 1.5), "784 numbers from 0 to 1"),
            (lambda d: d["user_data"]["ann"]["x"][0].__setitem__(5, float("nan")), "784 numbers from 0 to 1"),
            (lambda d: d["user_data"]["ann"]["y"].__setitem__(0, 62), "user 'ann'.*from 0 to 61"),
            (lambda d: d["user_data"]["ann"]["y"].__setitem__(0, "A"), "user 'ann'.*from 0 to 61"),
            (lambda d: (d["users"].clear(), d["num_samples"].clear()), "hold no samples"),
        ],
    )
    def test_faults_are_named(self, tmp_path: Path, spoil: Callable[[Any], object], sentence: str) -> None:
        document = leaf_document({"ann": (pictures(3), [1, 2, 3])})
        spoil(document)
        (tmp_path / "broken.json").write_text(json.dumps(document))
        with pytest.raises(RegionFedError, match=sentence) as error:
            load_writers(str(tmp_path))
        assert str(tmp_path) in str(error.value)

    @pytest.mark.parametrize("text", ['{"users": [', "[]", '"\ud800"'])
    def test_files_that_are_no_json_objects(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "broken.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(RegionFedError, match=r"broken\.json"):
            load_writers(str(tmp_path))


class TestNpz:
    def test_array_of_writers_and_classes(self, tmp_path: Path) -> None:
        x = pictures(15).reshape(3, 5, 28, 28)
        np.savez(tmp_path / "a.npz", x=x)
        writers = load_writers(str(tmp_path / "a.npz"))
        assert (writers.class_counts[:, :5] == 1).all() and writers.class_counts.sum() == 15
        images, labels = writers.read(2)
        np.testing.assert_array_equal(images, x[2])
        assert labels.tolist() == [0, 1, 2, 3, 4]

    def test_rows_with_writers_of_any_name(self, tmp_path: Path) -> None:
        x, y, writer = pictures(5), np.array([7, 61, 7, 0, 3]), np.array(["b", "a", "b", "a", "b"])
        np.savez(tmp_path / "a.npz", x=x, y=y, writer=writer)
        writers = load_writers(str(tmp_path / "a.npz"))
        images, labels = writers.read(1)
        np.testing.assert_array_equal(images, x[[0, 2, 4]])
        assert labels.tolist() == [7, 7, 3]

    @pytest.mark.parametrize(
        ("arrays", "sentence"),
        [
            ({}, "needs an array x"),
            ({"x": np.zeros((2, 62, 28, 28))}, "needs an array x of uint8"),
            ({"x": np.zeros((2, 62, 32, 32), np.uint8)}, r"has uint8 \(2, 62, 32, 32\)"),
            ({"x": np.zeros((2, 63, 28, 28), np.uint8)}, "beyond the 62 classes"),
            ({"x": pictures(2), "y": np.zeros(2, int)}, "'writer' is missing"),
            ({"x": pictures(2), "y": np.zeros(3, int), "writer": np.zeros(2)}, r"'y' has the shape \(3,\)"),
            ({"x": pictures(2), "y": np.zeros(2), "writer": np.zeros(2)}, "'y' is float64"),
            ({"x": pictures(2), "y": np.array([0, -1]), "writer": np.zeros(2)}, "beyond the 62 classes"),
        ],
    )
    def test_faults_are_named(self, tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(RegionFedError, match=sentence):
            load_writers(str(tmp_path / "a.npz"))

    def test_file_that_is_no_archive(self, tmp_path: Path) -> None:
        (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 nothing more")
        for name in ("a.npz", "absent.npz"):
            with pytest.raises(RegionFedError, match=r"cannot be read as a \.npz archive"):
                load_writers(str(tmp_path / name))

    def test_sample_of_real_handwriting(self, sample_data: Path) -> None:
        file = sample_data / "femnist" / "chars74k_writers_00_44.npz"
        if not file.is_file():
            pytest.skip(f"no {file}")
        federation = FemnistFederation(FemnistSpec(regions=5, users_per_region=9, path=str(file)))
        assert Counter(federation.region_of) == dict.fromkeys(range(5), 9)
        parts = federation.user(44)
        assert sorted(g.label for g in everything(parts)) == list(range(62))
        assert len(parts.test) == 6


class TestDatasets:
    @staticmethod
    def rows(character: datasets.ClassLabel | datasets.Value, values: list[Any]) -> datasets.Dataset:
        features = datasets.Features(image=datasets.Image(), writer_id=datasets.Value("string"), character=character)
        images = [Image.fromarray(255 - x) for x in pictures(len(values))]  # black on white, as in the hub's copy
        ids = [("f01", "f00")[i % 2] for i in range(len(values))]
        return datasets.Dataset.from_dict({"image": images, "writer_id": ids, "character": values}, features=features)

    @pytest.mark.parametrize(
        ("character", "values"),
        [
            (datasets.ClassLabel(names=list(CLASSES)), [10, 61, 0, 35]),
            (datasets.ClassLabel(names=sorted(CLASSES, key=str.swapcase)), ["A", "z", "0", "Z"]),
            (datasets.Value("string"), ["A", "z", "0", "Z"]),
            (datasets.Value("int64"), [10, 61, 0, 35]),
        ],
    )
    def test_saved_data_set(self, tmp_path: Path, character: Any, values: list[Any]) -> None:
        self.rows(character, values).save_to_disk(str(tmp_path))
        writers = load_writers(str(tmp_path))
        images, labels = writers.read(0)
        assert labels.tolist() == [61, 35]
        np.testing.assert_array_equal(images, pictures(4)[[1, 3]])

    def test_saved_dictionary_uses_all_splits(self, tmp_path: Path) -> None:
        part = self.rows(datasets.Value("int64"), [1, 2])
        datasets.DatasetDict(train=part, test=part).save_to_disk(str(tmp_path))
        assert load_writers(str(tmp_path)).class_counts.sum(axis=1).tolist() == [2, 2]

    def test_images_of_another_size_are_brought_to_28(self, tmp_path: Path) -> None:
        white = Image.new("RGB", (128, 128), "white")
        data = datasets.Dataset.from_dict(
            {"image": [white], "writer_id": ["f"], "character": ["a"]},
            features=datasets.Features(
                image=datasets.Image(), writer_id=datasets.Value("string"), character=datasets.Value("string")
            ),
        )
        data.save_to_disk(str(tmp_path))
        np.testing.assert_array_equal(load_writers(str(tmp_path)).read(0)[0], np.zeros((1, 28, 28), np.uint8))

    def test_faults_are_named(self, tmp_path: Path) -> None:
        good = self.rows(datasets.Value("string"), ["A", "B"])
        faults = {
            "no column 'character'": good.remove_columns("character"),
            "must hold images": good.remove_columns("image").add_column("image", [1, 2]),
            "the character 'é'": self.rows(datasets.Value("string"), ["A", "é"]),
            "row 1: writer_id is empty": good.remove_columns("writer_id").add_column("writer_id", ["f", None]),
        }
        for number, (sentence, data) in enumerate(faults.items()):
            folder = tmp_path / str(number)
            data.save_to_disk(str(folder))
            with pytest.raises(RegionFedError, match=sentence):
                load_writers(str(folder))
        (folder / "dataset_info.json").write_text("{")
        with pytest.raises(RegionFedError, match="not a data set saved by datasets"):
            load_writers(str(folder))

    def test_hub_name_without_network_is_one_sentence(self) -> None:
        with pytest.raises(RegionFedError, match="'nobody/nothing' is no local path, and the hub did not give it"):
            load_writers("nobody/nothing")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path, sentence in (
        (tmp_path, r"has no \*\.json file"),
        (tmp_path / "absent", "does not exist"),
        (tmp_path / "notes.txt", "has an unknown format"),
    ):
        with pytest.raises(RegionFedError, match=sentence):
            FemnistFederation(FemnistSpec(path=str(path)))
