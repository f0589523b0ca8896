# Needs BuildKit, for the cache mounts: Docker 23 or newer, or DOCKER_BUILDKIT=1.
#
#   docker build -t weir --build-arg VERSION=v1.2.3 --build-arg REVISION=$(git rev-parse HEAD) .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION REVISION
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags="-s -w -X github.com/weir-proxy/weir/proxy/cli.version=$VERSION -X github.com/weir-proxy/weir/proxy/cli.revision=$REVISION" -o /out/weir .
# What reload.keep and tls.acme.storage may write into.
RUN mkdir -p /out/state

# One static binary, the certificates that it trusts, a folder to write into, and
# nothing to log in as.
FROM scratch
ARG VERSION REVISION
LABEL org.opencontainers.image.title="Weir" \
    org.opencontainers.image.description="HTTP reverse proxy for rate limiting" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.revision=$REVISION
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /out/state /var/lib/weir
COPY --from=build /out/weir /usr/bin/weir
COPY config.example.yaml /etc/weir/
WORKDIR /etc/weir
USER 65532:65532
VOLUME /var/lib/weir
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s CMD ["/usr/bin/weir", "healthcheck"]
ENTRYPOINT ["/usr/bin/weir"]
