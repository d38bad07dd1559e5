# Trefoil on Debian 12, from these sources:
#   docker build -t trefoil .
#   docker run --rm -v "$PWD:/work" trefoil pretrain -c run.yaml
FROM debian:12-slim AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
COPY . /src
WORKDIR /src
# make has its own list of packages, and installs them.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends make \
    && rm -rf build && make deb && rm -rf /var/lib/apt/lists/*

FROM debian:12-slim
COPY --from=build /src/build/trefoil_*.deb /tmp/
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/trefoil_*.deb openssh-client \
    && rm -rf /var/lib/apt/lists/* /tmp/trefoil_*.deb \
    && useradd --create-home --uid 1000 trefoil
# A container may not read its neighbours' memory, by which Open MPI copies without it.
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none
USER 1000
WORKDIR /work
ENTRYPOINT ["trefoil"]
CMD ["--help"]
