# The one binary on a small base. Configuration, secrets and data come from outside.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked -p outhaul-server && cp target/release/outhaul /usr/local/bin/outhaul

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/outhaul --create-home outhaul
COPY --from=build /usr/local/bin/outhaul /usr/local/bin/outhaul
USER 10001
WORKDIR /var/lib/outhaul
# SIGTERM gives running chunks back; leave it longer than worker.shutdown_grace before SIGKILL.
STOPSIGNAL SIGTERM
ENTRYPOINT ["outhaul"]
CMD ["serve"]
