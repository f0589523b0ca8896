package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	units "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/ratelimit/src/utils"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/route"
)

// at is a time at which no two units begin, in seconds: envoyproxy/ratelimit counts two that begin together as one.
const at = 1_700_000_123

// With rate_from a limit of a descriptor replaces the configured one as in envoyproxy/ratelimit: each unit has a count of its own,
// which the number does not change. What envoyproxy/ratelimit refuses uses up the limit there, and nothing in Weir.
func TestOverride_CountsLikeRatelimit(t *testing.T) {
	service, err := newRateLimitService("domain: edge\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 20}}]\n")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, []byte(`
listen: {http: none, decide: {grpc: "127.0.0.1:0"}}
routes:
  - {name: user, match: {domain: edge, descriptor: {user: "*"}}, limits: [{name: user, key: "descriptor:user", rate: 20/1h, rate_from: descriptor}]}
`))
	random := rand.New(rand.NewPCG(1, 2))
	refusals := 0
	for i := range 2000 {
		d := route.Descriptor{{Key: "user", Value: fmt.Sprint(random.IntN(5))}}
		sent := &envoy.RateLimitDescriptor{Entries: []*envoy.RateLimitDescriptor_Entry{{Key: "user", Value: d[0].Value}}}
		asked := proxy.AskedDescriptor{Descriptor: d, Hits: 1}
		if unit := random.IntN(7); unit > 1 { // a second would be over
			sent.Limit = &envoy.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(1 + random.IntN(60)), Unit: units.RateLimitUnit(unit)}
			asked.Rate = &limiter.Rate{Count: int64(sent.Limit.RequestsPerUnit), Window: proxy.RateLimitUnits()[unit]}
		}
		l := service.GetLimit(t.Context(), domain, sent)
		k := service.keys.GenerateCacheKey(domain, sent, l, at).Key
		want := answer{rate: limiter.Rate{Count: int64(l.Limit.RequestsPerUnit), Window: time.Duration(utils.UnitToDivider(l.Limit.Unit)) * time.Second}}
		if want.refused = service.counts[k] >= l.Limit.RequestsPerUnit; want.refused {
			refusals++
		} else {
			service.counts[k]++
			want.remaining = int64(l.Limit.RequestsPerUnit - service.counts[k])
		}
		var got answer
		q := &proxy.DescriptorQuestion{Listener: "decide/envoy", Domain: domain, Method: "POST", Path: "/", Deadline: time.Now().Add(time.Minute), Descriptors: []proxy.AskedDescriptor{asked}}
		p.DecideDescriptors(t.Context(), q, func(a *proxy.DescriptorAnswer) {
			s := a.Statuses[0]
			got = answer{rate: s.Rate, refused: s.Refused, remaining: s.Remaining}
		})
		if got != want {
			t.Fatalf("call %d, %v: %+v, want %+v", i, sent, got, want)
		}
	}
	if refusals < 100 {
		t.Errorf("%d refusals of 2000 calls; want more to compare", refusals)
	}
}
