package proxy

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"

	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/view"
)

// rateFromYAML has a limit of each algorithm whose rate a descriptor may replace, and one without.
const rateFromYAML = `
routes:
  - {name: token_bucket, match: {domain: edge, descriptor: {token_bucket: "*"}}, refund_on: {status: [5xx]}, limits: [{name: own, key: "descriptor:token_bucket", rate: 60/1h, rate_from: descriptor}]}
  - {name: sliding_log, match: {domain: edge, descriptor: {sliding_log: "*"}}, refund_on: {status: [5xx]}, limits: [{name: own, key: "descriptor:sliding_log", rate: 60/1h, rate_from: descriptor, algorithm: sliding_log}]}
  - {name: fixed_window, match: {domain: edge, descriptor: {fixed_window: "*"}}, refund_on: {status: [5xx]}, limits: [{name: own, key: "descriptor:fixed_window", rate: 60/1h, rate_from: descriptor, algorithm: fixed_window}]}
  - {name: sliding_window, match: {domain: edge, descriptor: {sliding_window: "*"}}, refund_on: {status: [5xx]}, limits: [{name: own, key: "descriptor:sliding_window", rate: 60/1h, rate_from: descriptor, algorithm: sliding_window}]}
  - {name: gcra, match: {domain: edge, descriptor: {gcra: "*"}}, refund_on: {status: [5xx]}, limits: [{name: own, key: "descriptor:gcra", rate: 60/1h, rate_from: descriptor, algorithm: gcra}]}
  - {name: shadow, match: {domain: edge, descriptor: {shadow: "*"}}, refund_on: {status: [5xx]}, limits: [{name: own, key: "descriptor:shadow", rate: 60/1h, rate_from: descriptor, mode: shadow}]}
  - {name: without, match: {domain: edge, descriptor: {without: "*"}}, limits: [{name: own, key: "descriptor:without", rate: 60/1h}]}
  - name: beside
    match: {domain: edge, descriptor: {beside: "*"}}
    limits: [{name: described, key: "descriptor:beside", rate: 60/1h, rate_from: descriptor}, {name: fixed, key: "descriptor:beside", rate: 30/1h}]
`

// asksRated asks about descriptors with rates in one call.
func (p *testProxy) asksRated(calls ...ratedCall) DescriptorAnswer {
	p.Helper()
	return p.asksAll(p.Context(), time.Now().Add(time.Minute), calls...)
}

// hasLeft asks about one descriptor and wants its status to have this rate, and so many left; -1 for a refusal.
func (p *testProxy) hasLeft(left int64, c ratedCall, rate string) DescriptorAnswer {
	p.Helper()
	got := p.asksRated(c)
	s := got.Statuses[0]
	if got.Allowed != (left >= 0) || s.Rate.String() != rate || got.Allowed && s.Remaining != left {
		p.Errorf("%+v: allowed %v, %+v; want %d left of %s", c, got.Allowed, s, left, rate)
	}
	return got
}

// A count belongs to the unit, whatever the number is, and a call without a rate has that of the limit.
func TestRateFrom_CountsByUnit(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, rateFromYAML, use)
		for _, algorithm := range []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window", "gcra"} {
			of := algorithm + "=a"
			p.hasLeft(60, ratedCall{of, 40, "100/1h"}, "100/1h")
			p.hasLeft(9, ratedCall{of, 1, "50/1h"}, "50/1h")
			p.hasLeft(-1, ratedCall{of, 1, "41/1h"}, "41/1h")
			p.hasLeft(49, ratedCall{of, 1, "50/1d"}, "50/1d")
			p.hasLeft(18, ratedCall{of, 1, ""}, "60/1h")
			p.hasLeft(58, ratedCall{of, 0, "100/1h"}, "100/1h") // a check
			p.hasLeft(-1, ratedCall{of, 0, "42/1h"}, "42/1h")
			p.hasLeft(8, ratedCall{of, 1, "9/30d"}, "9/30d")
			p.hasLeft(17, ratedCall{of, 1, "50/90s"}, "60/1h") // no unit
			p.hasLeft(-1, ratedCall{of, 200, "100/1h"}, "0/0s")
		}
	})
}

// All that is shown of a decision has the rate that was used.
func TestRateFrom_IsShown(t *testing.T) {
	p := newProxy(t, rateFromYAML)
	field := func(a DescriptorAnswer, name string) string {
		for _, f := range a.Response.Fields {
			if f.Name == name {
				return f.Value
			}
		}
		return ""
	}
	wait := regexp.MustCompile(`;t=\d+`)
	for _, test := range []struct {
		call          ratedCall
		limit, policy string
	}{
		{ratedCall{"beside=a", 1, ""}, `"described";r=59, "fixed";r=29`, `"described";q=60;w=3600, "fixed";q=30;w=3600`},
		{ratedCall{"beside=a", 1, "9/1d"}, `"described";r=8, "fixed";r=28`, `"described";q=9;w=86400, "fixed";q=30;w=3600`},
		{ratedCall{"beside=a", 1, "2/1d"}, `"described";r=0, "fixed";r=27`, `"described";q=2;w=86400, "fixed";q=30;w=3600`},
	} {
		got := p.asksRated(test.call)
		limit, policy := field(got, "Ratelimit"), field(got, "Ratelimit-Policy")
		if limit = wait.ReplaceAllString(limit, ""); limit != test.limit || policy != test.policy {
			t.Errorf("%+v: RateLimit: %s, RateLimit-Policy: %s; want %s, %s", test.call, limit, policy, test.limit, test.policy)
		}
	}
	refused := p.asksRated(ratedCall{"beside=a", 1, "2/1d"})
	if refused.Allowed || field(refused, "Ratelimit-Policy") != `"described";q=2;w=86400, "fixed";q=30;w=3600` {
		t.Errorf("refused with %+v", refused.Response.Fields)
	}
	recorded := p.Decisions(view.DecisionQuery{N: 1})[0]
	if len(recorded.Limits) != 2 || recorded.Limits[0].Rate != "described-1d" || recorded.Limits[0].Permits != "limit of the descriptor per 1d" {
		t.Errorf("recorded as %+v", recorded.Limits)
	}
}

// In one call the same count is taken once, with the cost of all, and the lowest rate decides.
func TestRateFrom_TwoInOneCall(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, rateFromYAML, use)
		got := p.asksRated(ratedCall{"token_bucket=a", 2, "9/1h"}, ratedCall{"token_bucket=a", 3, "7/1h"}, ratedCall{"token_bucket=b", 1, "5/1h"}, ratedCall{"token_bucket=a", 1, "7/1d"})
		var left []int64
		for _, s := range got.Statuses {
			left = append(left, s.Remaining)
		}
		if want := []int64{2, 2, 4, 6}; !got.Allowed || !slices.Equal(left, want) {
			t.Fatalf("allowed %v with %v left; want %v", got.Allowed, left, want)
		}
		if len(got.Pendings) != 3 { // those of the same count are of the first
			t.Errorf("%d outcomes are expected; want 3", len(got.Pendings))
		}
		got = p.asksRated(ratedCall{"token_bucket=a", 1, "5/1h"}, ratedCall{"token_bucket=a", 1, "90/1h"}, ratedCall{"token_bucket=b", 1, "5/1h"})
		if got.Allowed || got.Statuses[2].Refused {
			t.Errorf("%+v; want the first two refused", got.Statuses)
		}
		p.hasLeft(3, ratedCall{"token_bucket=b", 1, "5/1h"}, "5/1h")
	})
}

// A refund by handle finds the permits of a rate that no configuration has, on any node, once.
func TestRateFrom_RefundByHandle(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p, other := twoOver(t, rateFromYAML, use)
		for _, algorithm := range []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window", "gcra"} {
			of := algorithm + "=a"
			first := p.hasLeft(40, ratedCall{of, 10, "50/1d"}, "50/1d")
			second := p.hasLeft(30, ratedCall{of, 10, "50/1d"}, "50/1d")
			own := p.hasLeft(50, ratedCall{of, 10, ""}, "60/1h")
			other.reports(first.Pendings[0], 503, nil)
			p.reports(first.Pendings[0], 503, ErrSettled)
			if err := other.Settle(t.Context(), OutcomeReport{Pending: second.Pendings[0], Cost: 4, Valid: time.Minute}); err != nil {
				t.Fatal(err)
			}
			p.hasLeft(46, ratedCall{of, 0, "50/1d"}, "50/1d")
			if err := other.Settle(t.Context(), OutcomeReport{Pending: own.Pendings[0], Cost: 13, Valid: time.Minute}); err != nil {
				t.Fatal(err)
			}
			p.hasLeft(47, ratedCall{of, 0, ""}, "60/1h")
		}
	})
}

func TestRateFrom_ManyAtOnceGetWhatThereIs(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p, other := twoOver(t, rateFromYAML, use)
		if allowed := atOnce(200, func(i int) bool {
			return []*testProxy{p, other}[i%2].asksRated(ratedCall{"token_bucket=a", 1, "50/1d"}).Allowed
		}); allowed != 50 {
			t.Errorf("%d of 200 allowed; want 50", allowed)
		}
		p.hasLeft(59, ratedCall{"token_bucket=a", 1, ""}, "60/1h")
	})
}

func TestRateFrom_ShadowAndZeroAndIgnored(t *testing.T) {
	p := newProxy(t, rateFromYAML)
	for i := range 3 {
		if got := p.asksRated(ratedCall{"shadow=a", 1, "2/1h"}); !got.Allowed || got.Statuses[0].Shadow != (i == 2) {
			t.Errorf("shadow: %+v", got.Statuses)
		}
	}
	none := limiter.Rate{Window: time.Hour}
	ask := func(name string) (got DescriptorAnswer) {
		q := &DescriptorQuestion{Domain: "edge", Deadline: time.Now().Add(time.Minute), Descriptors: []AskedDescriptor{{Descriptor: routing.Descriptor{{Key: name, Value: "a"}}, Hits: 1, Rate: &none}}}
		p.DecideDescriptors(t.Context(), q, func(a *DescriptorAnswer) { got = *a })
		return got
	}
	if got := ask("token_bucket"); got.Allowed || !got.Statuses[0].Refused {
		t.Errorf("a limit of 0: %+v; want a refusal", got)
	}
	if got := ask("shadow"); !got.Allowed {
		t.Errorf("a limit of 0 in shadow mode: %+v; want none", got)
	}
	if lines := p.lines("limit of a descriptor ignored"); len(lines) != 0 {
		t.Errorf("log has %v", lines)
	}
	for range 3 {
		if got := ask("without"); !got.Allowed || got.Statuses[0].Rate.Count != 60 {
			t.Errorf("without rate_from: %+v", got)
		}
	}
	if lines := p.lines("limit of a descriptor ignored"); len(lines) != 1 || lines[0]["route"] != "without" {
		t.Errorf("log has %v; want one line", lines)
	}
}

// While the store is unreachable, a node grants its share of the descriptor's rate.
func TestRateFrom_WithoutTheStore(t *testing.T) {
	for policy, allowed := range map[string]int{"local": 2, "deny": 0} {
		p := newProxy(t, "defaults: {on_store_failure: "+policy+"}\n"+rateFromYAML, func(o *Options) { o.Nodes = func() int { return 2 } })
		p.store.fail(limiter.ErrUnavailable)
		for i := range 4 {
			if got := p.asksRated(ratedCall{"token_bucket=a", 1, "4/1h"}); got.Allowed != (i < allowed) {
				t.Errorf("%s: call %d: %+v", policy, i, got)
			}
		}
	}
}

// An operator's reset and ban hold for all units.
func TestRateFrom_ResetAndBan(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, rateFromYAML, use)
		for _, algorithm := range []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window", "gcra"} {
			of := algorithm + "=a"
			p.hasLeft(0, ratedCall{of, 5, "5/1d"}, "5/1d")
			pairs := []string{"descriptor:" + of, "@" + algorithm}
			p.changes(view.KeyChange{Action: view.KeyReset}, pairs...)
			p.hasLeft(4, ratedCall{of, 1, "5/1d"}, "5/1d")
			p.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, pairs...)
			p.hasLeft(-1, ratedCall{of, 1, "5/1d"}, "5/1d")
			p.hasLeft(-1, ratedCall{of, 1, "5/7d"}, "5/1w")
		}
	})
}
