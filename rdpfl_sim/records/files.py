"""Names of the files of a run folder."""

EVENTS, METRICS_FILE = "events.jsonl", "metrics.csv"
SCENARIO, TOPOLOGY, PROVENANCE, SUMMARY = "scenario.toml", "topology.json", "provenance.json", "summary.json"
CHECKPOINTS = "checkpoints"
MODELS_FILE = "models.safetensors"
RUNS = "runs"
"""The folder in the folder of a sweep that contains its run folders."""
TRACEBACK = "traceback.txt"
