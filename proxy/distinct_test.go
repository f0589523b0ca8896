package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/limit"
)

// fan is a route on which an address may use two phones, and fail to.
const fan = `refund_on: {status: [5xx]}, limits: [{name: each, key: header:X-Phone, rate: 3/1h}, {name: fan, key: client_ip, distinct: header:X-Phone, rates: [2/1h, 3/1d]%s}]`

func (p *testProxy) phone(want int, phone string, query ...string) {
	p.Helper()
	p.sends(want, "POST", "/a?"+strings.Join(query, "&"), "X-Phone: "+phone)
}

// Values are counted, not requests: the same one passes as often as the other
// limits let it, also after another was refused.
func TestDistinct_CountsValues(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, "")), use)
		w.phone(200, "1")
		w.phone(200, "2")
		w.phone(429, "3")
		w.phone(200, "1")
		w.phone(429, "3")
		w.phone(200, "2")
		w.phone(200, "1")
		w.phone(429, "1") // its own limit
		w.phone(429, "4")
		rec := w.sends(200, "POST", "/a", "X-Phone: 2")
		if got, want := rec.Header().Get("RateLimit"), `"fan-1h";r=0, "fan-1d";r=1`; !strings.Contains(got, want) {
			t.Errorf("RateLimit = %s; want %s in it: the same number may come again", got, want)
		}
		rec = w.sends(429, "POST", "/a", "X-Phone: 5")
		if got := rec.Body.String(); !strings.Contains(got, `"violated-policies":["fan-1h"]`) {
			t.Errorf("%s; want fan-1h violated", got)
		}
	})
}

// A request that is given back, or that another limit refuses, leaves no value.
func TestDistinct_WhatIsGivenBackDoesNotStand(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, "")), use)
		for i := range 5 {
			w.phone(503, fmt.Sprint("failed", i), "status=503")
		}
		for range 3 {
			w.phone(200, "1")
		}
		w.phone(429, "1")
		w.phone(200, "2")
		w.phone(429, "3")
	})
}

func TestDistinct_CountPenaltyAndShadow(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, ", count: {status: [4xx]}")), use)
		for i := range 5 {
			w.phone(200, fmt.Sprint("fine", i))
		}
		w.phone(404, "1", "status=404")
		w.phone(404, "2", "status=404")
		w.phone(429, "3")
		w.phone(200, "2")
	})
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, ", penalty: {ban: 1h, after: 2}")), use)
		w.phone(200, "1")
		w.phone(200, "2")
		w.phone(429, "3")
		w.phone(429, "4")
		w.phone(429, "1") // banned now
	})
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, ", mode: shadow")), use)
		for i := range 5 {
			w.phone(200, fmt.Sprint(i))
		}
		w.counted(3, w.metrics.Decisions.WithLabelValues("a", "fan", limit.ShadowRefused))
	})
}
