# Tiergate as an image: the program on a base that has a C library, the authorities that the web believes, and no shell.
#
#   docker build -t tiergate .
#   docker build -t tiergate-dev --target dev .     `tiergate-dev` instead, for trying it out
#   docker build --target symbols --output . .     tiergate.debug: the symbols of the same program
#   docker build -t tiergate --build-arg BUILD_COMMIT=$(git rev-parse --short=12 HEAD) .     `version` names the commit
#
# It reads /etc/tiergate/tiergate.toml, which has to be mounted. It writes nowhere but into
# store.embedded.path, and with a store in Redis nowhere at all: a read-only root is fine. conf/compose shows it in use.

FROM rust:1.95-slim-bookworm AS source
# For zlib-ng, which is built with cmake.
# Its versions are those of the base image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .

FROM source AS build
# The history is not copied, so git can't be asked.
ARG BUILD_COMMIT=
# Symbols stay beside the program: what a panic says has file and line without them. As scripts/dist does.
ENV CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none
RUN cargo build --release --locked \
    && mkdir -p /image/data \
    && objcopy --only-keep-debug target/release/tiergate /image/tiergate.debug \
    && objcopy --strip-all --add-gnu-debuglink=/image/tiergate.debug target/release/tiergate /image/tiergate \
    && rm -rf target

FROM scratch AS symbols
COPY --from=build /image/tiergate.debug /

FROM source AS build-dev
ARG BUILD_COMMIT=
RUN cargo build --release --locked --features dev-chain --bin tiergate-dev \
    && mkdir /image \
    && mv target/release/tiergate-dev /image/ \
    && rm -rf target

# A chain whose keys everybody knows, and a sample API. It has no `tiergate`, and the other image has nothing of it.
FROM gcr.io/distroless/cc-debian12:nonroot AS dev
COPY --from=build-dev /image/tiergate-dev /usr/local/bin/tiergate-dev
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/tiergate-dev"]

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /image/tiergate /usr/local/bin/tiergate
# The embedded store's folder, if it is used: ./data, as conf/tiergate.toml has it. Mount a volume there. A start without the
# store's file is refused, but with TIERGATE__STORE__EMBEDDED__CREATE=true: set it for the first start alone.
COPY --from=build --chown=65532:65532 /image/data /var/lib/tiergate/data
WORKDIR /var/lib/tiergate
ENV TIERGATE_CONFIG=/etc/tiergate/tiergate.toml
USER 65532:65532
# Drains for shutdown.delay and shutdown.grace, 25 seconds; give it 30 before it is killed (docker stop -t 30).
STOPSIGNAL SIGTERM
# Alive, not ready: a restart does not help against a store or a chain that is away.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/usr/local/bin/tiergate", "health"]
ENTRYPOINT ["/usr/local/bin/tiergate"]
CMD ["run"]
