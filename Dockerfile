# syntax=docker/dockerfile:1
# The scoring service. Targets: `cpu` (default) and `cuda`.
#   docker build -t cloakwork .                      docker run -p 8123:8123 -v cloakwork:/data cloakwork
#   docker build --target cuda -t cloakwork:cuda .   docker run --gpus all -p 8123:8123 -v cloakwork:/data cloakwork:cuda
# Make the first API key with: docker run --rm -v cloakwork:/data cloakwork tenants add NAME   (docs/service.md)

FROM python:3.12-slim-bookworm AS build-cpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
ENV SKBUILD_CMAKE_DEFINE=CLOAKWORK_CUDA=OFF
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/cloakwork \
    && /opt/cloakwork/bin/python -m pip install --constraint constraints.txt ".[client,service,postgresql,s3]"

FROM python:3.12-slim-bookworm AS cpu-base
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin cloakwork \
    && install --directory --owner=cloakwork --group=cloakwork --mode=0700 /data
COPY --from=build-cpu /opt/cloakwork /opt/cloakwork

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build-cuda
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
ENV SKBUILD_CMAKE_DEFINE=CLOAKWORK_CUDA=ON
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/cloakwork \
    && /opt/cloakwork/bin/python -m pip install --constraint constraints.txt ".[client,service,postgresql,s3]"

# `runtime` has cuBLAS, which the back end looks up when it starts.
FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04 AS cuda
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin cloakwork \
    && install --directory --owner=cloakwork --group=cloakwork --mode=0700 /data
COPY --from=build-cuda /opt/cloakwork /opt/cloakwork
ENV PATH=/opt/cloakwork/bin:$PATH PYTHONUNBUFFERED=1 CLOAKWORK_DATA_FOLDER=/data CLOAKWORK_HOST=0.0.0.0 CLOAKWORK_DEVICES=cuda:0
USER 10001
VOLUME /data
EXPOSE 8123
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s \
    CMD ["/opt/cloakwork/bin/python", "-m", "cloakwork.api.health_check"]
ENTRYPOINT ["cloakwork"]
CMD ["serve"]

FROM cpu-base AS cpu
ENV PATH=/opt/cloakwork/bin:$PATH PYTHONUNBUFFERED=1 CLOAKWORK_DATA_FOLDER=/data CLOAKWORK_HOST=0.0.0.0 CLOAKWORK_DEVICES=cpu
USER 10001
VOLUME /data
EXPOSE 8123
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s \
    CMD ["/opt/cloakwork/bin/python", "-m", "cloakwork.api.health_check"]
ENTRYPOINT ["cloakwork"]
CMD ["serve"]
