package test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// An envoyClient asks one Weir about descriptors.
type envoyClient struct{ *grpc.ClientConn }

// envoyClient connects to the listener for Envoy.
func (w *weir) envoyClient() envoyClient {
	w.t.Helper()
	to, err := grpc.NewClient(w.WaitForLog("serving", nil).Text("decide_grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { to.Close() })
	return envoyClient{to}
}

// asks asks about the descriptor number=N with a limit of count a day, and returns the code of the answer.
func (e envoyClient) asks(ctx context.Context, number string, count uint64) (code uint64, err error) {
	message := func(field protowire.Number, of []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), of)
	}
	varint := func(field protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n)
	}
	entry := append(message(1, []byte("number")), message(2, []byte(number))...)
	descriptor := append(message(1, entry), message(2, append(varint(1, count), varint(2, 4)...))...)
	var answer []byte
	if err := e.Invoke(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", append(message(1, []byte("edge")), message(2, descriptor)...), &answer, grpc.ForceCodec(bytesCodec{})); err != nil {
		return 0, err
	}
	_, _, n := protowire.ConsumeTag(answer)
	code, _ = protowire.ConsumeVarint(answer[n:]) // overall_code is the first field
	return code, nil
}

// The limits that descriptors bring are counted together by all nodes, and outlive them.
func TestDecide_LimitsOfDescriptorsOverTwoNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + `
listen: {http: none, decide: {grpc: "127.0.0.1:0", within: 1m}}
admin: {http: "127.0.0.1:0"}
routes:
  - name: mesh
    match: {domain: edge, descriptor: {number: "*"}}
    limits: [{name: number, key: "descriptor:number", rate: 1/1h, rate_from: descriptor}]
`
	begin := func() envoyClient {
		file := weirtest.Write(t, config)
		return startWith(t, filepath.Dir(file), "-c", file).envoyClient()
	}
	nodes := []envoyClient{begin(), begin()}
	var allowed, failed atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			switch code, err := nodes[i%2].asks(t.Context(), "a", 50); {
			case err != nil:
				failed.Add(1)
			case code == 1:
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if allowed.Load() != 50 || failed.Load() != 0 {
		t.Errorf("%d of 200 allowed, and %d failed; want 50 and none", allowed.Load(), failed.Load())
	}
	again := begin()
	for _, c := range []struct{ count, want uint64 }{{50, 2}, {51, 1}, {51, 2}, {60, 1}} {
		if code, err := again.asks(t.Context(), "a", c.count); code != c.want || err != nil {
			t.Errorf("another node, %d a day: code %d, %v; want %d", c.count, code, err, c.want)
		}
	}
}
