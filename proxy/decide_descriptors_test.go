package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/redistest"
)

// describedYAML has routes that Envoy asks about.
const describedYAML = `
keys: {phone: "descriptor:phone"}
routes:
  - {name: sms, match: {domain: edge, descriptor: {phone: "*"}}, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h}]}
  - {name: user, match: {domain: edge, descriptor: {user: "*"}}, limits: [{name: user, key: "descriptor:user", rate: 9/1h}]}
  - name: hidden
    match: {domain: edge, descriptor: {hidden: "*"}}
    limits: [{name: secret, key: "descriptor:hidden", rate: 1/1h, expose: false}, {name: open, key: "descriptor:hidden", rate: 5/1h}]
`

// A ratedCall is a descriptor with entries NAME=VALUE, with hits and a rate, which may be "".
type ratedCall struct {
	descriptor string
	hits       int64
	rate       string
}

// asksAll asks about descriptors of the domain edge in one call, which is due then.
func (p *testProxy) asksAll(ctx context.Context, due time.Time, calls ...ratedCall) (got DescriptorAnswer) {
	p.Helper()
	q := &DescriptorQuestion{Listener: "decide/test", Domain: "edge", Method: "POST", Path: "/", Deadline: due, Hold: time.Minute}
	for _, c := range calls {
		asked := AskedDescriptor{Hits: c.hits}
		for _, entry := range strings.Fields(c.descriptor) {
			name, value, _ := strings.Cut(entry, "=")
			asked.Descriptor = append(asked.Descriptor, routing.DescriptorField{Key: name, Value: value})
		}
		if c.rate != "" {
			rate, err := limiter.ParseRate(c.rate)
			if err != nil {
				p.Fatal(err)
			}
			asked.Rate = &rate
		}
		q.Descriptors = append(q.Descriptors, asked)
	}
	p.DecideDescriptors(ctx, q, func(a *DescriptorAnswer) {
		got = *a
		got.Response.Fields, got.Response.Body = slices.Clone(a.Response.Fields), slices.Clone(a.Response.Body)
		for i := range got.Response.Fields {
			got.Response.Fields[i].Value = strings.Clone(got.Response.Fields[i].Value)
		}
	})
	return got
}

// describe asks about descriptors with one hit each.
func (p *testProxy) describe(ctx context.Context, due time.Time, descriptors ...string) DescriptorAnswer {
	p.Helper()
	var calls []ratedCall
	for _, d := range descriptors {
		calls = append(calls, ratedCall{d, 1, ""})
	}
	return p.asksAll(ctx, due, calls...)
}

// describes asks as describe does, and wants this status.
func (p *testProxy) describes(status int, descriptors ...string) DescriptorAnswer {
	p.Helper()
	got := p.describe(p.Context(), time.Now().Add(time.Minute), descriptors...)
	if got.Response.Status != status || got.Allowed != (status == 200) {
		p.Errorf("%v: allowed %v, %d; want %d", descriptors, got.Allowed, got.Response.Status, status)
	}
	return got
}

func TestDecideDescriptors_AreRecordedWithoutAClient(t *testing.T) {
	for _, client := range []string{"full", "network", "hashed", "none"} {
		t.Run(client, func(t *testing.T) {
			p := newProxy(t, "privacy: {log_client: "+client+"}\n"+describedYAML)
			p.describes(200, "phone=1", "phone=2")
			p.describes(200, "phone=1")
			p.describes(429, "phone=2", "phone=1")
			lines := p.lines("request")
			if len(lines) != 4 || lines[0]["listener"] != "decide/test" || lines[3]["status"] != 429.0 || lines[3]["limit"] != "phone" {
				t.Fatalf("log has %v; want a line for each descriptor, and of a refused call for those that are refused", lines)
			}
			for _, line := range lines {
				if who, has := line["client"]; has {
					t.Errorf("the client is %q; nobody knows it", who)
				}
			}
			all := p.Decisions(view.DecisionQuery{N: 10}) // of the allowed ones a sample
			if len(all) < 2 || all[0].Listener != "decide/test" || all[0].Outcome != "refused" || all[0].Route != "sms" {
				t.Errorf("decisions are %+v", all)
			}
		})
	}
}

func TestDecideDescriptors_AllOrNoneAndRefundedOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p, other := twoOver(t, describedYAML, use)
		p.describes(200, "user=ann", "phone=1")
		last := other.describes(200, "user=ann", "phone=1")
		for range 9 {
			refused := p.describes(429, "user=ann", "phone=1")
			if refused.Statuses[0].Refused || !refused.Statuses[1].Refused || refused.Statuses[1].Limit != "phone" || len(refused.Pendings) != 0 {
				t.Fatalf("statuses are %+v, with %d outcomes", refused.Statuses, len(refused.Pendings))
			}
		}
		if left := p.describes(200, "user=ann").Statuses[0].Remaining; left != 6 {
			t.Errorf("%d left of 9 after three requests; want 6", left)
		}
		if len(last.Pendings) != 1 {
			t.Fatalf("%d outcomes are expected; want that of the route with refund_on", len(last.Pendings))
		}
		other.reports(last.Pendings[0], 503, nil)
		p.reports(last.Pendings[0], 503, ErrSettled)
		p.describes(200, "phone=1")
		p.describes(429, "phone=1")
	})
}

func TestDecideDescriptors_HiddenLimitsStayHidden(t *testing.T) {
	p := newProxy(t, describedYAML)
	for _, status := range []int{200, 429} {
		got := p.describes(status, "hidden=1")
		if s := got.Statuses[0]; s.Refused != (status == 429) || s.Limit == "secret" || s.Rate.Count == 1 {
			t.Errorf("status is %+v", s)
		}
		if text := fmt.Sprint(got.Response.Fields, string(got.Response.Body)); strings.Contains(text, "secret") {
			t.Errorf("answered with %s", text)
		}
	}
}

// While the secret of keys is replaced, each key has two claims; they are told apart from those of another key.
func TestDecideDescriptors_TwoKeysUnderTwoSecrets(t *testing.T) {
	p := newProxy(t, "privacy: {hash_secret: 0123456789abcdef0123, previous_secret: 0123456789abcdef4567}\n"+describedYAML)
	p.describes(200, "phone=1")
	p.describes(200, "phone=1")
	got := p.describes(429, "phone=2", "phone=1")
	if got.Statuses[0].Refused || !got.Statuses[1].Refused || got.Statuses[0].Remaining != 2 {
		t.Errorf("statuses are %+v; want the second alone refused", got.Statuses)
	}
}

// Whoever has not waited for the answer lets the request pass or refuses it by itself: nothing is counted.
func TestDecideDescriptors_UnwaitedDecisionIsRefunded(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, describedYAML, use)
		gone, leave := context.WithCancel(t.Context())
		leave()
		for range 3 {
			p.describe(gone, time.Now().Add(time.Minute), "phone=1", "user=ann")
		}
		if left := p.describes(200, "phone=1", "user=ann").Statuses[0].Remaining; left != 1 {
			t.Errorf("%d left of 2; want 1", left)
		}
	})
}

func TestDecideDescriptors_LateDecisionIsRefundedAndDecidedWithoutTheStore(t *testing.T) {
	for policy, status := range map[string]int{"allow": 200, "deny": 503, "local": 200} {
		store := &gatedStore{limiter.NewMemory(limiter.MemoryOptions{}), make(chan bool), make(chan bool, 1)}
		p := newProxy(t, "store: redis\nredis: {addrs: [127.0.0.1:1], timeout: 1m}\ndefaults: {on_store_failure: "+policy+"}\n"+describedYAML, func(o *Options) { o.Store = store })
		if got := p.describe(t.Context(), time.Now(), "phone=1", "user=ann"); got.Response.Status != status {
			t.Errorf("%s: late decision answered with %d; want %d", policy, got.Response.Status, status)
		}
		store.gate <- true
		<-store.refunds
		close(store.gate)
		p.describes(200, "phone=1")
		p.describes(200, "phone=1")
		p.describes(429, "phone=1")
	}
}

// What became of the codes is told of descriptors as of requests: each limit, each key and each mode counts
// the calls that passed, and one that nobody has waited for was not sent.
func TestDecideDescriptors_AreCountedAsSent(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, `
keys: {phone: "descriptor:phone"}
routes:
  - name: send
    match: {domain: edge, descriptor: {country: "*", phone: "*"}}
    limits:
      - {name: unused, key: "descriptor:country", rate: 3/1h, return_on: {route: verify, key: phone}}
      - {name: shadow, key: "descriptor:country", rate: 2/1h, mode: shadow, return_on: {route: verify, key: phone}}
  - {name: verify, match: {domain: edge, descriptor: {verify: "*", phone: "*"}}, limits: [{name: guesses, key: phone, rate: 100/1h}]}
`, use)
		p.describes(200, "country=CN phone=1")
		p.describes(200, "country=CN phone=2", "country=US phone=3")
		gone, leave := context.WithCancel(t.Context())
		for _, of := range []struct {
			country string
			leaves  func(*DescriptorAnswer)
		}{
			{"CN", func(*DescriptorAnswer) { leave() }},
			{"US", func(*DescriptorAnswer) {}}, // then Redis is not asked, but told; if it is being told when the permit comes back, it refunds it a moment later
		} {
			p.DecideDescriptors(gone, &DescriptorQuestion{
				Domain: "edge", Deadline: time.Now().Add(time.Minute),
				Descriptors: []AskedDescriptor{{Descriptor: routing.Descriptor{{Key: "country", Value: of.country}, {Key: "phone", Value: "4"}}, Hits: 1}},
			}, of.leaves)
		}
		p.describes(200, "country=CN phone=5")
		p.describes(429, "country=CN phone=6")
		verified := p.describes(200, "verify=yes phone=1")
		p.reports(verified.Pendings[0], 200, nil)

		all, err := p.Sends(t.Context(), sends.Query{N: 9}, p.TopSends(sends.Query{N: 9}))
		if err != nil || len(all) != 2 {
			t.Fatalf("%d limits, %v", len(all), err)
		}
		for _, l := range all {
			want := sends.Counts{Sent: 4, Used: 1, Ratio: 0.25, Refunded: 1}
			if strings.HasSuffix(t.Name(), "/memory") { // is always asked
				want.Refunded = 2
			}
			if l.Limit == "shadow" {
				want.WouldRefuse = 1
			}
			if l.All != want {
				t.Errorf("%s: %+v; want %+v", l.Limit, l.All, want)
			}
			if len(l.Keys) != 2 || l.Keys[0].Sent != 3 || l.Keys[1].Sent < 1 || l.Keys[1].Sent > 2 {
				t.Errorf("%s: keys %+v; want CN with 3 and US with 1, or 2", l.Limit, l.Keys)
			}
		}
	})
}

// asksHits asks about one descriptor that costs hits, and wants this status.
func (p *testProxy) asksHits(status int, hits int64, name, value string) (got DescriptorAnswer) {
	p.Helper()
	got = p.asksAll(p.Context(), time.Now().Add(time.Minute), ratedCall{name + "=" + value, hits, ""})
	if got.Response.Status != status {
		p.Errorf("%d hits of %s=%s: %d; want %d", hits, name, value, got.Response.Status, status)
	}
	return got
}

// A report of what a request has cost corrects limits that count requests. Concurrent permits are released, and others keep
// what they count.
func TestDecideDescriptors_SettledByTheCost(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, `
defaults: {on_store_failure: deny}
routes:
  - {name: log, match: {domain: edge, descriptor: {log: "*"}}, refund_on: {status: [5xx]}, limits: [{key: "descriptor:log", rates: [20/1h, 100/1d]}]}
  - {name: many, match: {domain: edge, descriptor: {many: "*"}}, refund_on: {status: [5xx]}, limits: [{key: "descriptor:many", rate: 900/1h, algorithm: sliding_log}]}
  - {name: counter, match: {domain: edge, descriptor: {counter: "*"}}, refund_on: {status: [5xx]}, limits: [{key: "descriptor:counter", rate: 30/1h, algorithm: fixed_window}]}
  - {name: running, match: {domain: edge, descriptor: {running: "*"}}, limits: [{key: "descriptor:running", concurrent: 15}]}
  - {name: kinds, match: {domain: edge, descriptor: {kinds: "*"}}, refund_on: {status: [5xx]}, limits: [{key: global, distinct: "descriptor:kinds", rate: 99/1h}]}
`, use)
		for i, test := range []struct {
			report OutcomeReport
			left   map[string]int64 // after a request that took 10, or one value
		}{
			{OutcomeReport{Cost: 4}, map[string]int64{"log": 16, "many": 896, "counter": 26, "running": 15, "kinds": 98}},
			{OutcomeReport{Cost: 13}, map[string]int64{"log": 7, "many": 887, "counter": 17, "running": 15, "kinds": 97}},
			{OutcomeReport{Cost: 90}, map[string]int64{"log": 0, "many": 810, "counter": 0, "running": 15, "kinds": 96}},
			{OutcomeReport{Less: 3}, map[string]int64{"log": 13, "many": 893, "counter": 23, "running": 15, "kinds": 96}},
			{OutcomeReport{Less: 11}, map[string]int64{"log": 20, "many": 900, "counter": 30, "running": 15, "kinds": 96}},
		} {
			for name, left := range test.left {
				value := fmt.Sprint(i)
				test.report.Pending, test.report.Valid = p.asksHits(200, 10, name, value).Pendings[0], time.Minute
				for _, want := range []error{nil, ErrSettled, ErrSettled} {
					if err := p.Settle(t.Context(), test.report); !errors.Is(err, want) {
						t.Errorf("%s %d: settled with %v, want %v", name, i, err, want)
					}
				}
				status := 200
				if left == 0 {
					status = 429
				}
				if got := p.asksHits(status, 0, name, value).Statuses[0].Remaining; got != left {
					t.Errorf("%s %d: %d left, want %d", name, i, got, left)
				}
			}
		}
	})
}

// What a request has cost more than was taken is owed, also beyond what is left, and by every window; a limit that Java
// programs share owes nothing.
func TestDecideDescriptors_OwesWhatIsMissing(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, `
routes:
  - {name: own, match: {domain: edge, descriptor: {own: "*"}}, refund_on: {status: [5xx]}, limits: [{key: "descriptor:own", rates: [20/1h, 100/1d]}]}
  - {name: java, match: {domain: edge, descriptor: {java: "*"}}, refund_on: {status: [5xx]}, limits: [{key: "descriptor:java", rate: 20/1h, redisson_name: "java:{key}"}]}
`, use)
		for i, want := range []int64{90, 10} {
			r := p.current.Load().routes[i]
			report := OutcomeReport{Pending: p.asksHits(200, 10, r.Name, "x").Pendings[0], Cost: 90, Valid: time.Minute}
			if err := p.Settle(t.Context(), report); err != nil {
				t.Fatal(err)
			}
			for _, w := range r.Windows {
				shared, _ := w.Of.SharedName("x")
				c := limiter.Claim{Limit: &w.Limit, Key: p.current.Load().config.Privacy.Hash([]string{"descriptor:" + r.Name, "x"}), Cost: 1, RedissonName: shared}
				if in, err := p.admitter.Store.Inspect(t.Context(), []limiter.Claim{c}); err != nil || in.Statuses[0].Used != want {
					t.Errorf("%s: %+v, %v; want %d used", w.Name, in.Statuses, err, want)
				}
			}
		}
	})
}

// A check while the store is unreachable refuses only where the store must be asked.
func TestDecideDescriptors_ChecksWithoutTheStore(t *testing.T) {
	for policy, status := range map[string]int{"allow": 200, "deny": 503, "local": 200} {
		p := newProxy(t, "defaults: {on_store_failure: "+policy+"}\n"+describedYAML, func(o *Options) { o.Store = failingPeek{limiter.NewMemory(limiter.MemoryOptions{})} })
		got := p.asksHits(status, 0, "user", "ann")
		if got.Statuses[0].Refused != (status == 503) || len(got.Pendings) != 0 {
			t.Errorf("%s: %+v", policy, got)
		}
		if left := p.asksHits(200, 1, "user", "ann").Statuses[0].Remaining; left != 8 {
			t.Errorf("%s: %d left of 9 after a check and a request, want 8", policy, left)
		}
	}
}

// Descriptors of one call that together are more than a key may ever have are refused, and take nothing; in shadow mode it
// is recorded that they would be.
func TestDecideDescriptors_TogetherMoreThanTheMaximum(t *testing.T) {
	const file = describedYAML + `
  - {name: shadow, match: {domain: edge, descriptor: {shadow: "*"}}, limits: [{name: shadow, key: "descriptor:shadow", rate: 2/1h, mode: shadow}, {name: other, key: "descriptor:shadow", rate: 20/1h}]}
  - {name: distinct, match: {domain: edge, descriptor: {of: "*", to: "*"}}, limits: [{name: distinct, key: "descriptor:of", distinct: "descriptor:to", rate: 2/1h}]}
`
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, file, use)
		refused := p.describes(400, "user=ann", "phone=1", "phone=1", "phone=1")
		if refused.Statuses[0].Refused || !refused.Statuses[3].Refused {
			t.Errorf("statuses are %+v; want the last refused", refused.Statuses)
		}
		if left := p.describes(200, "user=ann").Statuses[0].Remaining; left != 8 {
			t.Errorf("%d left of 9 after one; want 8", left)
		}
		p.describes(200, "phone=1", "phone=1")
		p.describes(429, "phone=1")

		for range 2 {
			if got := p.describes(200, "shadow=a", "shadow=a", "shadow=a"); !got.Statuses[2].Shadow {
				t.Errorf("statuses in shadow mode are %+v", got.Statuses)
			}
		}
		if s := p.asksHits(200, 3, "shadow", "a").Statuses[0]; !s.Shadow || s.Remaining != 11 {
			t.Errorf("three hits in shadow mode: %+v; want 11 left of 20", s)
		}

		p.describes(400, "of=a to=1", "of=a to=2") // one claim has one value
		p.describes(200, "of=a to=1", "of=a to=1")
		p.describes(200, "of=a to=2")
		p.describes(429, "of=a to=3")
	})
}

// A call with more rates than one decision may have is refused as the peer's mistake. The log says so, with the number,
// once a minute, however much of the access log is written.
func TestDecideDescriptors_TooManyAreLogged(t *testing.T) {
	for _, access := range []string{"json", "none"} {
		p := newProxy(t, describedYAML+"access_log: {format: "+access+"}\n")
		descriptors := make([]string, limiter.MaxClaims)
		for i := range descriptors {
			descriptors[i] = fmt.Sprint("phone=", i)
		}
		p.describes(200, descriptors...)
		tooMany := append(descriptors, "user=ann")
		for range 3 {
			if got := p.describes(400, tooMany...); !strings.Contains(string(got.Response.Body), "129") {
				t.Errorf("the peer is told %s", got.Response.Body)
			}
		}
		lines := p.lines("call with too many descriptors refused")
		if len(lines) != 1 || lines[0]["descriptors"] != 129.0 || !strings.Contains(fmt.Sprint(lines[0]["error"]), "129 claims") {
			t.Errorf("%s: the log says %v", access, lines)
		}
		p.describes(429, "phone=1", "phone=1") // one was taken
		p.describes(200, "user=ann")
	}
}

// Two routes whose limits are counted by one limiter of Redisson count by it together, whatever the limits are called.
func TestDecideDescriptors_OneLimiterOfRedissonForTwoRoutes(t *testing.T) {
	const file = `
routes:
  - {name: a, match: {domain: edge, descriptor: {a: "*"}}, limits: [{name: one, key: "descriptor:a", rate: 3/1h, redisson_name: "shared:{key}"}]}
  - {name: b, match: {domain: edge, descriptor: {b: "*"}}, limits: [{name: two, key: "descriptor:b", rate: 3/1h, redisson_name: "shared:{key}"}]}
  - {name: s, match: {domain: edge, descriptor: {s: "*"}}, limits: [{name: three, key: "descriptor:s", rate: 3/1h, redisson_name: "shared:{key}", mode: shadow}]}
  - {name: u, match: {domain: edge, descriptor: {u: "*"}}, limits: [{name: four, key: "descriptor:u", rate: 2/1h, redisson_name: "shared:{key}", mode: shadow}]}
  - {name: v, match: {domain: edge, descriptor: {v: "*"}}, limits: [{name: five, key: "descriptor:v", rate: 2/1h, redisson_name: "shared:{key}"}]}
`
	p := newProxy(t, file, func(o *Options) { o.Store = redisStore(t, redistest.Start(t).Addr) })
	got := p.describes(200, "a=1", "b=1")
	if got.Statuses[0].Limit != "one" || got.Statuses[1].Limit != "two" || got.Statuses[0].Remaining != 1 || got.Statuses[1].Remaining != 1 {
		t.Errorf("statuses are %+v; want 1 left of both", got.Statuses)
	}
	p.describes(429, "a=1", "b=1")
	p.describes(200, "s=1", "b=1")
	p.describes(429, "a=1")
	for _, refuses := range []bool{false, true} {
		if got := p.describes(200, "s=2", "u=2"); got.Statuses[0].Shadow != refuses || got.Statuses[1].Shadow != refuses {
			t.Errorf("statuses in shadow mode are %+v; want both refused: %v", got.Statuses, refuses)
		}
	}
	for left := range 3 { // one in enforce mode takes for both
		if got := p.describes(200, "s=3", "a=3"); got.Statuses[0].Shadow || got.Statuses[1].Remaining != int64(2-left) {
			t.Errorf("statuses are %+v; want %d left, and none refused in shadow mode", got.Statuses, 2-left)
		}
	}
	if got := p.describes(200, "a=4", "v=4"); got.Statuses[1].Limit != "five" || got.Statuses[1].Remaining != 1 {
		t.Errorf("statuses are %+v; want 1 left by the rate of the first", got.Statuses)
	}
}

// A limit in shadow mode says of each of two keys in one call that it would refuse it.
func TestDecideDescriptors_ShadowOfEachKey(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, `
routes:
  - {name: s, match: {domain: edge, descriptor: {s: "*"}}, limits: [{name: s, key: "descriptor:s", rate: 1/1h, mode: shadow}]}
  - {name: h, match: {domain: edge, descriptor: {h: "*"}}, limits: [{name: h, key: "descriptor:h", rate: 1/1h, mode: shadow, expose: false}]}
`, use)
		for _, refuses := range []bool{false, true} {
			if got := p.describes(200, "s=1", "s=2"); got.Statuses[0].Shadow != refuses || got.Statuses[1].Shadow != refuses {
				t.Errorf("statuses are %+v; want both refused: %v", got.Statuses, refuses)
			}
		}
		for range 2 {
			if got := p.describes(200, "h=1"); got.Statuses[0].Shadow {
				t.Errorf("a limit with expose: false is told of: %+v", got.Statuses)
			}
		}
		if lines := p.lines("request"); len(lines) != 6 || lines[5]["shadow"] == nil || lines[2]["shadow"] == nil || lines[3]["shadow"] == nil {
			t.Errorf("log has %v", lines)
		}
	})
}

// A penalty is that of the key that was refused, and not of others under the same limit in the call; each is one decision.
func TestDecideDescriptors_PenaltyOfEachKey(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, `
routes:
  - name: a
    match: {domain: edge, descriptor: {a: "*"}}
    limits:
      - {name: l, key: "descriptor:a", rate: 1/1s, penalty: {ban: 1h, after: 2}}
      - {name: s, key: "descriptor:a", rate: 1/1h, mode: shadow}
`, use)
		p.describes(200, "a=bad", "a=new")
		var last DescriptorAnswer
		for range 2 {
			last = p.describes(429, "a=good", "a=bad")
		}
		counts := p.Counts()
		if n, refused := counts[Series{Route: "a", Limit: "l", Result: "allowed"}], counts[Series{Route: "a", Limit: "l", Result: "refused"}]; n < 3 || refused != 2 {
			t.Errorf("%d allowed, %d refused; want 2 of the first call, at least one of the others, and 2 refused", n, refused)
		}
		if s := last.Statuses; s[0].Refused || !s[1].Refused || s[1].Reset < time.Minute {
			t.Errorf("statuses are %+v; want a ban of the second", s)
		}
		if line := p.lines("request"); line[len(line)-1]["ban_began"] != true {
			t.Errorf("the log has %v; want that a ban began", line[len(line)-1])
		}
		p.describes(200, "a=good")
		p.describes(429, "a=bad")
		if got := testutil.ToFloat64(p.metrics.Bans.WithLabelValues("a", "l")); got != 1 {
			t.Errorf("%v bans, want 1", got)
		}
	})
}
