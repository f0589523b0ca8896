package respond

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/rounds"
)

func TestNewQuota_RefusesWhatNoFieldCanSay(t *testing.T) {
	good := rate("1/1s")
	for name, c := range map[string]struct {
		policies []Policy
		style    Style
	}{
		"style":      {nil, "draft-3"},
		"no style":   {nil, ""},
		"empty name": {[]Policy{{Name: "", Rate: good}}, IETF},
		"blank":      {[]Policy{{Name: "a b", Rate: good}}, IETF},
		"digit":      {[]Policy{{Name: "1m", Rate: good}}, IETF},
		"line break": {[]Policy{{Name: "a\n", Rate: good}}, IETF},
		"quote":      {[]Policy{{Name: `a"`, Rate: good}}, None},
		"twice":      {[]Policy{{Name: "a", Rate: good}, {Name: "a", Rate: good}}, IETF},
		"rate":       {[]Policy{{Name: "a"}}, IETF},
	} {
		if _, err := NewRateLimitFields(c.policies, c.style, Reject{}); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: error %v, want ErrPolicy", name, err)
		}
	}
}

func TestHeaders_OnForwardedAnswers(t *testing.T) {
	allowed := &limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{
		{Allowed: true, Remaining: 0, Wait: 59001 * time.Millisecond},
		{Allowed: true, Remaining: 9},
		{Allowed: true, Remaining: 19},
	}}
	for name, c := range map[string]struct {
		style    Style
		verdict  Verdict
		upstream http.Header
		want     http.Header
	}{
		"ietf": {
			IETF, Verdict{Decision: allowed}, nil,
			http.Header{"Ratelimit-Policy": {`"phone-1m";q=1;w=60, "phone-1d";q=10;w=86400`}, "Ratelimit": {`"phone-1m";r=0;t=60, "phone-1d";r=9`}},
		},
		"ietf continues the upstream's list": {
			IETF, Verdict{Decision: allowed},
			http.Header{"Ratelimit-Policy": {`"own";q=5`}, "Ratelimit": {`"own";r=4`}},
			http.Header{
				"Ratelimit-Policy": {`"own";q=5`, `"phone-1m";q=1;w=60, "phone-1d";q=10;w=86400`},
				"Ratelimit":        {`"own";r=4`, `"phone-1m";r=0;t=60, "phone-1d";r=9`},
			},
		},
		"a limit that did not apply": {
			IETF, Verdict{Decision: &limiter.Decision{Allowed: true, Outcomes: allowed.Outcomes[1:2]}, Policies: []int{1}}, nil,
			http.Header{"Ratelimit-Policy": {`"phone-1m";q=1;w=60, "phone-1d";q=10;w=86400`}, "Ratelimit": {`"phone-1d";r=9`}},
		},
		"an outcome that is not shown": {
			IETF, Verdict{Decision: allowed, Policies: []int{-1, 1, 7}}, nil,
			http.Header{"Ratelimit-Policy": {`"phone-1m";q=1;w=60, "phone-1d";q=10;w=86400`}, "Ratelimit": {`"phone-1d";r=9`}},
		},
		"no limit applied": {
			IETF, Verdict{Decision: &limiter.Decision{Allowed: true}}, nil,
			http.Header{"Ratelimit-Policy": {`"phone-1m";q=1;w=60, "phone-1d";q=10;w=86400`}},
		},
		"triple of the tightest": {
			XRateLimit, Verdict{Decision: allowed}, nil,
			http.Header{"X-Ratelimit-Limit": {"1"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"}},
		},
		"triple replaces a looser one": {
			XRateLimit, Verdict{Decision: allowed, Policies: []int{2, 1, -1}},
			http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"10"}, "X-Ratelimit-Reset": {"5"}},
			http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"86400"}},
		},
		"triple of a quota that nobody used": {
			XRateLimit, Verdict{Decision: &limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 10}}}, Policies: []int{1}}, nil,
			http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"10"}, "X-Ratelimit-Reset": {"0"}},
		},
		"triple keeps a tighter one": {
			XRateLimit, Verdict{Decision: allowed, Policies: []int{2, 1, -1}},
			http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"8"}, "X-Ratelimit-Reset": {"5"}},
			http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"8"}, "X-Ratelimit-Reset": {"5"}},
		},
		"none": {None, Verdict{Decision: allowed}, nil, http.Header{}},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.upstream
			if h == nil {
				h = http.Header{}
			}
			mustQuota(t, c.style, phone(), day(), hidden()).Headers(c.verdict, netHeader{h})
			same(t, h, c.want)
		})
	}
}

func TestHeaders_OnlyHiddenLimitsLeaveNoTrace(t *testing.T) {
	for _, style := range []Style{IETF, XRateLimit} {
		h := http.Header{}
		d := &limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true}}}
		mustQuota(t, style, hidden()).Headers(Verdict{Decision: d}, netHeader{h})
		same(t, h, http.Header{})
	}
}

func TestHeaders_ResponsesShareNothing(t *testing.T) {
	q := mustQuota(t, IETF, phone())
	v := Verdict{Decision: &limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true}}}}
	first, second := http.Header{}, http.Header{}
	q.Headers(v, netHeader{first})
	first.Add("RateLimit-Policy", `"theirs";q=1`)
	q.Headers(v, netHeader{second})
	if got := second.Values("RateLimit-Policy"); len(got) != 1 {
		t.Errorf("second response has %q, want ours alone", got)
	}
}

// A kept is a Header that costs nothing by itself.
type kept struct{ fields []Field }

func (k *kept) Values(name string) []string { return nil }
func (k *kept) Set(name, value string)      { k.Add(name, value) }
func (k *kept) Add(name, value string)      { k.fields = append(k.fields, Field{name, value}) }

func TestHeaders_CostNoAllocation(t *testing.T) {
	for _, style := range []Style{IETF, XRateLimit, None} {
		q := mustQuota(t, style, phone(), day(), hidden())
		v, h, m := refused(), &kept{}, &Buffer{}
		v.Buffer = m
		if n := rounds.Allocations(100, func() { h.fields = h.fields[:0]; m.Reset(); q.Headers(v, h) }); n > 0 {
			t.Errorf("%s: %v allocations, want none", style, n)
		}
	}
}

func TestTooMany_CostsNoAllocation(t *testing.T) {
	for _, reject := range []Reject{
		{},
		{Detail: "{limit} for {retry_after} s", Fields: []Field{{"X-Reason", "{limit} in {retry_after}"}}},
		{Body: `{"id":"{request_id}"}`, ContentType: "application/json"},
	} {
		q, err := NewRateLimitFields([]Policy{phone(), day(), hidden()}, IETF, reject)
		if err != nil {
			t.Fatal(err)
		}
		r := Refusal{Verdict: refused(), RequestID: "0123456789abcdef"}
		r.Buffer = new(Buffer)
		if n := rounds.Allocations(100, func() { q.TooManyRequests(r) }); n > 0 {
			t.Errorf("%+v: %v allocations, want none", reject, n)
		}
	}
}

// A memory makes one answer after another, and each is as if it were alone.
func TestMemory_AnswersShareNothingButMemory(t *testing.T) {
	q := mustQuota(t, IETF, phone(), day(), hidden())
	long, short := refused(), refused()
	long.Decision.Outcomes[0].Wait, short.Decision.Outcomes[1].Allowed = 900*time.Second, false
	m := new(Buffer)
	for range 3 {
		for _, v := range []Verdict{long, short} {
			want := q.TooManyRequests(Refusal{Verdict: v, RequestID: "a"})
			v.Buffer = m
			got := q.TooManyRequests(Refusal{Verdict: v, RequestID: "a"})
			if !slices.Equal(got.Fields, want.Fields) || string(got.Body) != string(want.Body) {
				t.Errorf("got %v %s, want %v %s", got.Fields, got.Body, want.Fields, want.Body)
			}
		}
	}
}

func same(t *testing.T, got, want http.Header) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("header %v, want %v", got, want)
	}
	for name := range want {
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s: %q, want %q", name, got[name], want[name])
		}
	}
}

func BenchmarkHeaders(b *testing.B) {
	q := mustQuota(b, IETF, phone(), day(), hidden())
	v, h := refused(), &kept{}
	v.Buffer = new(Buffer)
	b.ReportAllocs()
	for b.Loop() {
		h.fields = h.fields[:0]
		v.Buffer.Reset()
		q.Headers(v, h)
	}
}

func BenchmarkTooMany(b *testing.B) {
	q := mustQuota(b, IETF, phone(), day(), hidden())
	r := Refusal{Verdict: refused(), RequestID: "0123456789abcdef"}
	r.Buffer = new(Buffer)
	b.ReportAllocs()
	for b.Loop() {
		q.TooManyRequests(r)
	}
}

// A client with a policy of its own sees it in place of those of all clients, and nobody
// else sees it.
func TestHeaders_PoliciesOfOneClient(t *testing.T) {
	minute, hour := limiter.Rate{Count: 1, Window: time.Minute}, limiter.Rate{Count: 9, Window: time.Hour}
	q, err := NewRateLimitFields([]Policy{
		{Name: "a-1m", Rate: minute, Expose: true, Limit: "a"},
		{Name: "a-1h", Rate: hour, Expose: true, Limit: "a"},
		{Name: "a", Rate: limiter.Rate{Count: 7, Window: time.Hour}, Expose: true, Limit: "a", IsOther: true},
		{Name: "a", Rate: limiter.Rate{Count: 8, Window: time.Hour}, Expose: true, Limit: "a", IsOther: true},
		{Name: "b", Rate: hour, Expose: true, Limit: "b"},
	}, IETF, Reject{})
	if err != nil {
		t.Fatal(err)
	}
	granted := limiter.Outcome{Allowed: true, Remaining: 1}
	for _, c := range []struct {
		of   []int
		want string
	}{
		{[]int{0, 1, 4}, `"a-1m";q=1;w=60, "a-1h";q=9;w=3600, "b";q=9;w=3600`},
		{[]int{3, 4}, `"a";q=8;w=3600, "b";q=9;w=3600`},
		{[]int{2}, `"a";q=7;w=3600, "b";q=9;w=3600`},
	} {
		d := limiter.Decision{Allowed: true}
		for range c.of {
			d.Outcomes = append(d.Outcomes, granted)
		}
		h := http.Header{}
		q.Headers(Verdict{Decision: &d, Policies: c.of}, netHeader{h})
		if got := h.Get("RateLimit-Policy"); got != c.want {
			t.Errorf("outcomes of %v: RateLimit-Policy = %s; want %s", c.of, got, c.want)
		}
	}
}

// A netHeader is a Header as net/http knows it.
type netHeader struct{ http.Header }

// Set implements Header.
func (h netHeader) Set(name, value string) { h.Header[name] = []string{strings.Clone(value)} }

// Add implements Header.
func (h netHeader) Add(name, value string) {
	h.Header[name] = append(h.Header[name], strings.Clone(value))
}

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
