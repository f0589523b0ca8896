package upstream

import (
	"context"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/pooltest"
)

type noSink struct{}

func (noSink) AbortWith(http1.Aborter) {}

// What forwards the next request, which may be another client's, keeps memory alone.
func TestForwarding_ResetForgetsTheRequest(t *testing.T) {
	f := new(forwarding)
	pooltest.Fill(t, f, context.Background(), new(http1Sender), new(http1.Duplex), new(http1.Call), header(new(http1.Head)), noSink{})
	f.reset()
	pooltest.Empty(t, f)
}
