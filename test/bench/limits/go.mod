module github.com/weir-proxy/weir/test/bench/limits

go 1.26.0

require (
	github.com/sethvargo/go-limiter v0.7.1
	github.com/weir-proxy/weir v0.0.0
	golang.org/x/time v0.15.0
)

require (
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/weir-proxy/weir => ../../..
