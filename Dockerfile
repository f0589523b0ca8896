# Builds with every docker, with BuildKit and buildx or without, and without .git:
#
#   docker build -t weir --build-arg VERSION=v1.2.3 --build-arg REVISION=$(git rev-parse HEAD) .
#
# The compiler's image can be given with its digest: --build-arg COMPILER=golang:1.26@sha256:...
# Nothing of it gets into the image but the certificates.
ARG COMPILER=golang:1.26
FROM --platform=${BUILDPLATFORM:-linux} $COMPILER AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY test/release/bill/go.mod test/release/bill/go.sum test/release/bill/
RUN go mod download && go mod download -C test/release/bill
COPY . .
# Without BuildKit TARGETOS and TARGETARCH are empty: then it is for the machine that builds.
ARG TARGETOS TARGETARCH VERSION REVISION DATE
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags="-s -w -buildid= -X github.com/weir-proxy/weir/proxy/cli.version=$VERSION -X github.com/weir-proxy/weir/proxy/cli.revision=$REVISION -X github.com/weir-proxy/weir/proxy/cli.date=$DATE" -o /out/weir .
# What is inside, and under which licences.
RUN mkdir -p /out/doc && cp LICENSE /out/doc && \
    cd test/release/bill && go run . -version "$VERSION" -sbom /out/doc/weir.cdx.json -licenses /out/doc/LICENSES /out/weir
# What reload.keep and tls.acme.storage may write into.
RUN mkdir -p /out/state
# Envoy Gateway starts its rate limit service by this name.
RUN mkdir /out/bin && ln -s ../usr/bin/weir /out/bin/ratelimit

# One static binary, the certificates that it trusts, a folder to write into, and
# nothing to log in as.
FROM scratch
ARG VERSION REVISION DATE
LABEL org.opencontainers.image.title="Weir" \
    org.opencontainers.image.description="HTTP reverse proxy for rate limiting" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.source="https://github.com/weir-proxy/weir" \
    org.opencontainers.image.documentation="https://github.com/weir-proxy/weir/blob/main/README.md" \
    org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.revision=$REVISION \
    org.opencontainers.image.created=$DATE
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /out/state /var/lib/weir
COPY --from=build /out/doc /usr/share/doc/weir
COPY --from=build /out/weir /usr/bin/weir
COPY --from=build /out/bin /bin
COPY config.example.yaml /etc/weir/
WORKDIR /etc/weir
USER 65532:65532
VOLUME /var/lib/weir
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s CMD ["/usr/bin/weir", "healthcheck"]
ENTRYPOINT ["/usr/bin/weir"]
