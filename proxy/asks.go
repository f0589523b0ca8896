package proxy

import "github.com/weir-proxy/weir/limiter"

// asks are what a request asks of windows of its route, in one step.
type asks struct {
	claims  []limiter.Claim
	windows []int // windows[i] is the window of the route that claims[i] asks for
}

// reset is none, in the same memory.
func (a asks) reset() asks { return asks{a.claims[:0], a.windows[:0]} }
