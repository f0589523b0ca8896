package respond

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weir-proxy/weir/limiter"
)

// TestTooMany_Invariants draws policies and decisions at random and reads the
// answers with a parser that is not ours.
func TestTooMany_Invariants(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		policies, v := draw(rng)
		q := mustQuota(t, IETF, policies...)
		jitter := time.Duration(rng.Int64N(int64(3 * time.Second)))
		a := q.TooManyRequests(Refusal{Verdict: v, Jitter: jitter})
		whole(t, a)

		after, err := strconv.ParseInt(a.Field("retry-after"), 10, 64)
		if err != nil || after < 1 || time.Duration(after)*time.Second < v.Decision.Wait+jitter {
			t.Fatalf("Retry-After %q for a wait of %v and %v", a.Field("Retry-After"), v.Decision.Wait, jitter)
		}
		h := http.Header{}
		a.CopyTo(h)
		limits, quotas := list(t, h.Values("RateLimit")), list(t, h.Values("RateLimit-Policy"))
		violated := parse(t, a).Violated
		for i, p := range policies {
			item, shown := limits[p.Name]
			if _, named := quotas[p.Name]; shown != p.Expose || named != p.Expose {
				t.Fatalf("policy %+v: shown %v, named %v", p, shown, named)
			}
			o := v.Decision.Outcomes[i]
			if slices.Contains(violated, p.Name) != (p.Expose && !o.Allowed) {
				t.Fatalf("violated-policies %q, outcome of %s %+v", violated, p.Name, o)
			}
			if shown {
				checkItem(t, item, quotas[p.Name], o, after)
			}
		}
	}
}

// checkItem checks one item of RateLimit against its item of RateLimit-Policy.
func checkItem(t *testing.T, item, policy map[string]int64, o limiter.Outcome, after int64) {
	t.Helper()
	r, q, w := item["r"], policy["q"], policy["w"]
	if r < 0 || r > q || q < 1 || w < 1 || item["t"] > w || after < item["t"] {
		t.Fatalf("item %v of policy %v, Retry-After %d", item, policy, after)
	}
	if !o.Allowed && (r != 0 || item["t"] < 1) {
		t.Fatalf("item %v of a refusal, want r=0 and t", item)
	}
	if wait := time.Duration(item["t"]) * time.Second; wait < o.Wait {
		t.Fatalf("t=%d for a wait of %v", item["t"], o.Wait)
	}
}

// draw makes up to 5 policies and a refusal by some of them.
func draw(rng *rand.Rand) ([]Policy, Verdict) {
	d := &limiter.Decision{}
	var policies []Policy
	for i := range 1 + rng.IntN(5) {
		r := limiter.Rate{Count: 1 + rng.Int64N(50), Window: time.Duration(1+rng.IntN(100_000)) * time.Millisecond}
		if rng.IntN(9) == 0 {
			r = limiter.Rate{Count: limiter.MaxCount, Window: limiter.MaxWindow}
		}
		policies = append(policies, Policy{Name: "p" + strconv.Itoa(i), Rate: r, Expose: rng.IntN(3) > 0})
		o := limiter.Outcome{Allowed: rng.IntN(2) == 0, Remaining: rng.Int64N(60)} // at times more than a lowered rate holds
		if !o.Allowed || rng.IntN(3) == 0 {
			o.Wait = 1 + time.Duration(rng.Int64N(int64(r.Window)))
			d.Wait = max(d.Wait, o.Wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	return policies, Verdict{Decision: d}
}

// list reads a structured List of String Items with Integer parameters.
func list(t testing.TB, lines []string) map[string]map[string]int64 {
	t.Helper()
	items := map[string]map[string]int64{}
	if len(lines) == 0 {
		return items
	}
	members, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("field %q: %v", lines, err)
	}
	for _, m := range members {
		item, ok := m.(httpsfv.Item)
		name, isString := item.Value.(string)
		if !ok || !isString {
			t.Fatalf("field %q: %v is not a String Item", lines, m)
		}
		params := map[string]int64{}
		for _, key := range item.Params.Names() {
			v, _ := item.Params.Get(key)
			n, isInteger := v.(int64)
			if !isInteger {
				t.Fatalf("field %q: %s of %s is not an Integer", lines, key, name)
			}
			params[key] = n
		}
		items[name] = params
	}
	return items
}

// FuzzNewQuota: whatever a policy is called, it is either refused or comes back
// from an independent parser unchanged, and no name breaks out of its field.
func FuzzNewQuota(f *testing.F) {
	for _, name := range []string{"phone-1m", "", `a"b`, "a b", "a\r\nSet-Cookie: x", "é", strings.Repeat("a", 300), "a,b;q=1"} {
		f.Add(name, int64(5), int64(1500))
	}
	f.Fuzz(func(t *testing.T, name string, count, ms int64) {
		window := time.Duration(ms%(int64(limiter.MaxWindow)/int64(time.Millisecond)+1)) * time.Millisecond
		p := Policy{Name: name, Rate: limiter.Rate{Count: count, Window: window}, Expose: true}
		q, err := NewRateLimitFields([]Policy{p}, IETF, Reject{})
		if err != nil {
			return
		}
		v := Verdict{Decision: &limiter.Decision{Wait: p.Rate.Window, Outcomes: []limiter.Outcome{{Wait: p.Rate.Window}}}}
		a := q.TooManyRequests(Refusal{Verdict: v, RequestID: name})
		whole(t, a)
		h := http.Header{}
		a.CopyTo(h)
		items := list(t, h.Values("RateLimit-Policy"))
		if len(items) != 1 || items[name]["q"] != count {
			t.Fatalf("policy %q came back as %v", name, items)
		}
		checkItem(t, list(t, h.Values("RateLimit"))[name], items[name], v.Decision.Outcomes[0], items[name]["w"])
		if got := parse(t, a).Violated; !slices.Equal(got, []string{name}) {
			t.Fatalf("violated-policies %q", got)
		}
	})
}
