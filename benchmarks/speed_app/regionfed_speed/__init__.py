"""A Flower app that runs regionfed-flwr's client and strategies on workloads whose cost is known."""
