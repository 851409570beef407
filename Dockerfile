# An image for the nodes of a cluster: the package, its pinned dependencies and Ray.
#
#   docker build -t rl-training .
#   docker run --rm -v /shared/runs:/shared/runs rl-training rl train ppo/cartpole --output-dir /shared/runs
#   docker run --network=host --shm-size=1g -v /shared/runs:/shared/runs rl-training ray start --block --address=HEAD:6379
#
# All nodes mount the output directory at the same path; `rl cluster check` says whether they do.
FROM python:3.11-slim

WORKDIR /opt/rl_training
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt ".[ray,tune,analysis]"

# One thread per process: runs pin their own number, and several share a node.
ENV OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
WORKDIR /work
CMD ["rl", "--help"]
