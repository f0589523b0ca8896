package ratelimit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	_ "github.com/envoyproxy/ratelimit/src/service_cmd/runner" // the program is built
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-proxy/weir/test/redistest"
)

// benchLimits are limits that refuse nobody.
const benchLimits = "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n  - {key: tenant, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n"

// BenchmarkDecision measures the time of a processor that a call of the service takes, in Weir and in
// envoyproxy/ratelimit, each with a Redis of its own. Each operation is one call.
func BenchmarkDecision(b *testing.B) {
	dir := b.TempDir()
	theirs := filepath.Join(dir, "theirs")
	if out, err := exec.Command("go", "build", "-o", theirs, "github.com/envoyproxy/ratelimit/src/service_cmd").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "ratelimit", "config", "edge.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(benchLimits), 0o600); err != nil {
		b.Fatal(err)
	}
	ours := filepath.Join(filepath.Dir(os.Getenv("WEIR_AS_RATELIMIT")), "weir")
	converted, err := exec.Command(ours, "convert", "ratelimit", file).Output()
	if err != nil {
		b.Fatal(err)
	}
	for _, descriptors := range []int{1, 2} {
		b.Run(fmt.Sprintf("weir/descriptors-%d", descriptors), func(b *testing.B) {
			redis, rpc := redistest.Start(b), fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(b))
			text := strings.Replace(string(converted), `{grpc: "127.0.0.1:8081"}`, fmt.Sprintf("{grpc: %q, within: 5s}", rpc), 1) +
				fmt.Sprintf("admin: {http: \"127.0.0.1:0\"}\nstore: redis\nredis: {addrs: [%q], timeout: 5s}\n", redis.Addr)
			weir := filepath.Join(b.TempDir(), "weir.yaml")
			if err := os.WriteFile(weir, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			measure(b, exec.Command(ours, "run", "-c", weir, "--log-level", "error"), rpc, descriptors)
		})
		b.Run(fmt.Sprintf("ratelimit/descriptors-%d", descriptors), func(b *testing.B) {
			redis, port := redistest.Start(b), redistest.FreePort(b)
			c := exec.Command(theirs)
			// Without Prometheus it would write each time that it measures to its log.
			c.Env = append(os.Environ(), "USE_STATSD=false", "USE_PROMETHEUS=true", fmt.Sprintf("PROMETHEUS_ADDR=127.0.0.1:%d", redistest.FreePort(b)), "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr,
				"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
				fmt.Sprint("PORT=", redistest.FreePort(b)), fmt.Sprint("DEBUG_PORT=", redistest.FreePort(b)), fmt.Sprint("GRPC_PORT=", port))
			measure(b, c, fmt.Sprintf("127.0.0.1:%d", port), descriptors)
		})
	}
}

// measure runs a service and calls it b.N times, from 32 callers over four connections.
func measure(b *testing.B, c *exec.Cmd, address string, descriptors int) {
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		c.Process.Kill()
		c.Wait()
		if b.Failed() {
			b.Log(said.String())
		}
	}()
	var clients []service.RateLimitServiceClient
	for range 4 {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		clients = append(clients, service.NewRateLimitServiceClient(conn))
	}
	call := func(i int) {
		r := &service.RateLimitRequest{Domain: "edge"}
		for _, key := range []string{"user", "tenant"}[:descriptors] {
			r.Descriptors = append(r.Descriptors, &envoy.RateLimitDescriptor{Entries: []*envoy.RateLimitDescriptor_Entry{{Key: key, Value: strconv.Itoa(i % 10_000)}}})
		}
		answer, err := clients[i%len(clients)].ShouldRateLimit(context.Background(), r)
		if err != nil || answer.OverallCode != service.RateLimitResponse_OK || answer.Statuses[0].CurrentLimit == nil {
			b.Errorf("%v, %v", answer, err)
		}
	}
	for i := range 2_000 { // connections, scripts, the heap
		call(i)
	}
	took := make([][]time.Duration, 32)
	began := cpu(b, c.Process.Pid)
	b.ResetTimer()
	var all sync.WaitGroup
	for g := range took {
		all.Go(func() {
			for i := g; i < b.N; i += len(took) {
				at := time.Now()
				call(i)
				took[g] = append(took[g], time.Since(at))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	times := slices.Concat(took...)
	slices.Sort(times)
	b.ReportMetric(float64((cpu(b, c.Process.Pid)-began).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// cpu returns the time of processors that a process has used.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
