package proxy

import (
	"net/netip"
	"testing"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
	"github.com/weir-proxy/weir/test/pooltest"
)

// An exchange that is used again tells nothing of the request before: what it keeps is memory.
func TestExchange_ResetForgetsTheRequest(t *testing.T) {
	x := newExchange().(*exchange)
	pooltest.Fill(t, x, noFields{}, x, new(http1Downstream), new(http1.Duplex), &reportedStore{})
	x.reset()
	pooltest.Empty(t, x, "exchange.reused", "exchange.unusedIDs", "exchange.forwarded.edit", "exchange.request.tree",
		"exchange.extracted.value.network", "exchange.extracted.value.address", "exchange.extracted.value.json", "exchange.extracted.extraction.memos", "exchange.forwarded.request.forwarding")
}

// A downstream that is used again keeps its exchange alone.
func TestDownstream_ReleaseForgetsTheRequest(t *testing.T) {
	budget := body.NewBudget(1 << 20)
	one := new(http1Downstream)
	pooltest.Fill(t, one)
	one.buffer, one.h = body.Buffer{Budget: budget, Client: netip.Prefix{}}, new(http1.Exchange)
	one.reqCtx = http1.Context{Exchange: one.h}
	one.release()
	pooltest.Empty(t, one, "http1Downstream.reusable.x")

	two := new(http2Downstream)
	pooltest.Fill(t, two, new(http2.Stream))
	two.buffer = body.Buffer{Budget: budget}
	two.release()
	pooltest.Empty(t, two, "http2Downstream.reusable.x")
}
