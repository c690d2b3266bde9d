"""What a run leaves behind: artifacts, table and pictures."""
