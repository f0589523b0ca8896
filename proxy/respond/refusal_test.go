package respond

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// refusing is a quota of a hidden limit and one that clients may know, and a
// decision in which both refused for 2 s.
func refusing(t *testing.T, reject Reject) (*RateLimitFields, Refusal) {
	t.Helper()
	q, err := NewRateLimitFields([]Policy{{Name: "hidden", Rate: rate("1/1h")}, {Name: "shown", Rate: rate("1/1h"), Expose: true}}, IETF, reject)
	if err != nil {
		t.Fatal(err)
	}
	no := limiter.Outcome{Wait: 2 * time.Second}
	d := limiter.Decision{Wait: 2 * time.Second, Outcomes: []limiter.Outcome{no, no}}
	return q, Refusal{Verdict: Verdict{Decision: &d}, RequestID: "a'&<{limit}"}
}

func TestTooMany_OwnWords(t *testing.T) {
	for _, c := range []struct {
		reject Reject
		want   string
	}{
		{Reject{Body: "wait {retry_after} s for {limit}, {request_id} {other} {status}"}, "wait 2 s for shown, a'&<{limit} {other} 403"},
		{Reject{Body: `{"after":{retry_after},"limit":"{limit}","id":"{request_id}"}`, ContentType: "application/json"}, "{\"after\":2,\"limit\":\"shown\",\"id\":\"a'\\u0026\\u003c{limit}\"}"},
		{Reject{Body: `"{request_id}"`, ContentType: "application/x+json; charset=utf-8"}, `"a'\u0026\u003c{limit}"`},
		{Reject{Body: `<b>{request_id}</b>`, ContentType: "text/html; charset=utf-8"}, "<b>a&#39;&amp;&lt;{limit}</b>"},
	} {
		reject := c.reject
		reject.Status = 403
		reject.Fields = []Field{{"X-Reason", "{limit} for {retry_after}"}}
		q, r := refusing(t, reject)
		a := q.TooManyRequests(r)
		if got := string(a.Body); got != c.want || a.Status != 403 {
			t.Errorf("%+v: %d %s; want 403 %s", c.reject, a.Status, got, c.want)
		}
		if a.Field("X-Reason") != "shown for 2" || a.Field("Content-Type") != c.reject.ContentType || a.Field("Retry-After") != "2" || a.Field("Cache-Control") != "no-store" {
			t.Errorf("%+v: fields %v", c.reject, a.Fields)
		}
		if strings.Contains(a.Field("Content-Type"), "json") && !json.Valid(a.Body) {
			t.Errorf("%s is not JSON", a.Body)
		}
	}
}

// A sentence of the operator's keeps its place in a problem.
func TestTooMany_OwnDetail(t *testing.T) {
	q, r := refusing(t, Reject{Detail: "{limit}, {retry_after}, {request_id}"})
	var got struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal(q.TooManyRequests(r).Body, &got); err != nil || got.Detail != "shown, 2, a'&<{limit}" || got.Status != 429 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A hidden limit has no name, not even where the operator asks for one.
func TestTooMany_HiddenLimitHasNoName(t *testing.T) {
	q, r := refusing(t, Reject{Body: "[{limit}]"})
	r.Decision.Outcomes[1].Allowed = true
	if got := string(q.TooManyRequests(r).Body); got != "[]" {
		t.Errorf("%s; want []", got)
	}
}

// A detail in which nothing is left is none.
func TestTooMany_EmptyDetailIsLeftOut(t *testing.T) {
	q, r := refusing(t, Reject{Detail: "{limit}"})
	r.Decision.Outcomes[1].Allowed = true
	if got := parse(t, q.TooManyRequests(r)); got.Detail != "" || strings.Contains(string(q.TooManyRequests(r).Body), "detail") {
		t.Errorf("%+v", got)
	}
}

// Only what JSON and HTML have no other meaning for is left as it is.
func TestIsSafe_EachByte(t *testing.T) {
	for c := range 256 {
		want := c >= ' ' && c <= '~' && !strings.ContainsRune(`"\<>&'`, rune(c))
		for _, s := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}), string([]byte{byte(c)}) + "a"} {
			if got := isSafe(s); got != want {
				t.Errorf("%q is safe: %v, want %v", s, got, want)
			}
		}
	}
}

// A client with overrides sees in a refusal the policies that are its own, and after it others see those of all.
func TestTooManyRequests_PoliciesOfOneClient(t *testing.T) {
	q := mustQuota(t, IETF,
		Policy{Name: "a", Rate: rate("1/60s"), Expose: true, Limit: "a"},
		Policy{Name: "a", Rate: rate("7/1h"), Expose: true, Limit: "a", IsOther: true})
	for _, policy := range []int{0, 1, 0} {
		a := q.TooManyRequests(Refusal{Verdict: Verdict{Policies: []int{policy}, Decision: &limiter.Decision{Outcomes: []limiter.Outcome{{Wait: time.Second}}}}})
		if got, want := a.Field("RateLimit-Policy"), []string{`"a";q=1;w=60`, `"a";q=7;w=3600`}[policy]; got != want {
			t.Errorf("policy %s; want %s", got, want)
		}
	}
}

// Browsers show a refusal to a page of another origin only if a field has that origin. Only what is an origin is
// repeated.
func TestTooMany_Origin(t *testing.T) {
	cors := []Field{{"Access-Control-Allow-Credentials", "true"}, {"Access-Control-Allow-Origin", "{origin}"}, {"X-Reason", "{limit}"}}
	q, r := refusing(t, Reject{Fields: cors})
	texts := NewErrorTexts([]Reject{{Status: 403, Fields: cors[:2]}})
	kept := NewCache(func([]Field) *int { return new(int) })
	for sent, allowed := range map[string]bool{
		"https://app.example": true, "http://localhost:3000": true, "https://[2001:db8::1]:8443": true, "chrome-extension://abcdef": true, "https://xn--bcher-kva.example": true,
		"": false, "null": false, "*": false, "https://a.example/": false, "https://a.example/x": false, "https://a.example, https://b.example": false,
		"https://a.example\r\nX: 1": false, "https://u@a.example": false, "https://": false, "//a.example": false, "https://a.example:123456": false, "https://a b": false, "https://é.example": false,
		"https://" + strings.Repeat("a", 300) + ".example": false,
	} {
		want := ""
		if allowed {
			want = sent
		}
		r.Origin = sent
		var repeated Response
		for range cacheAfter + 2 {
			repeated, _ = kept.TooManyRequests(q, &Refusal{Verdict: Verdict{Decision: r.Decision, Buffer: new(Buffer)}, RequestID: "id", Origin: sent})
		}
		for how, a := range map[string]Response{
			"refusal": q.TooManyRequests(r), "repeated refusal": repeated, "challenge": q.Challenge("c", "", r), "error": texts.Replace(Problem(http.StatusForbidden, "", "id"), "id", sent),
		} {
			if got := a.Field("Access-Control-Allow-Origin"); got != want || a.Field("Vary") != "Origin" || a.Field("Access-Control-Allow-Credentials") != "true" {
				t.Fatalf("%s for %q: %v", how, sent, a.Fields)
			}
		}
	}
	q, r = refusing(t, Reject{Fields: cors[:1]})
	if r.Origin = "https://app.example"; q.TooManyRequests(r).Field("Vary") != "" {
		t.Error("a response varies that has no origin")
	}
}

// Whoever is told to come back is told no more than a tenth later, and never more
// than half a minute, in whole seconds.
func TestJitter_IsBounded(t *testing.T) {
	nearlyOne := math.Nextafter(1, 0)
	for wait, most := range map[time.Duration]time.Duration{
		0:                        0,
		time.Second:              0,
		9999 * time.Millisecond:  0,
		10 * time.Second:         time.Second,
		59300 * time.Millisecond: 5 * time.Second,
		time.Minute:              6 * time.Second,
		299 * time.Second:        29 * time.Second,
		time.Hour:                30 * time.Second,
		30 * 24 * time.Hour:      30 * time.Second,
	} {
		luck := func(n float64) func() float64 { return func() float64 { return n } }
		if got := Jitter(wait, luck(nearlyOne)); got != most {
			t.Errorf("jitter of %v is at most %v; want %v", wait, got, most)
		}
		if got := Jitter(wait, luck(0)); got != 0 {
			t.Errorf("jitter of %v is at least %v; want none", wait, got)
		}
		if got := Jitter(wait, luck(0.5)); got < 0 || got > most {
			t.Errorf("jitter of %v is %v; want at most %v", wait, got, most)
		}
	}
}

// A limit that was not asked is one that nothing is told of: its policy is known, what
// is left of it is not.
func TestHeaders_NothingOfALimitThatWasNotAsked(t *testing.T) {
	refused := limiter.Outcome{Wait: 42 * time.Second}
	unknown := limiter.Outcome{Allowed: true, Remaining: 10, Unknown: true}
	v := Verdict{Decision: &limiter.Decision{Wait: 42 * time.Second, Outcomes: []limiter.Outcome{refused, unknown, unknown}}}
	h := http.Header{}
	a := mustQuota(t, IETF, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: v})
	a.CopyTo(h)
	if got := h["Ratelimit"]; !slices.Equal(got, []string{`"phone-1m";r=0;t=42`}) {
		t.Errorf("RateLimit %q; want only what refused", got)
	}
	if got := h.Get("RateLimit-Policy"); !strings.Contains(got, `"phone-1d"`) {
		t.Errorf("RateLimit-Policy %q; want all policies", got)
	}

	h = http.Header{}
	v.Decision.Outcomes[0], v.Decision.Outcomes[1] = unknown, limiter.Outcome{Wait: 42 * time.Second}
	mustQuota(t, XRateLimit, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: v}).CopyTo(h)
	if got := h.Get("X-RateLimit-Limit"); got != "10" {
		t.Errorf("X-RateLimit-Limit %q; want that of the limit that refused", got)
	}
}

func TestStatic(t *testing.T) {
	own := []Field{{"X-A", "1"}}
	for _, c := range []struct {
		status int
		body   string
		want   []Field
	}{
		{200, "ab", []Field{{"X-A", "1"}, {"Content-Type", "text/plain"}, {"Content-Length", "2"}}},
		{200, "", []Field{{"X-A", "1"}, {"Content-Length", "0"}}},
		{204, "ab", []Field{{"X-A", "1"}}},
		{304, "", []Field{{"X-A", "1"}}},
		{205, "ab", []Field{{"X-A", "1"}, {"Content-Length", "0"}}},
	} {
		got := Static(c.status, "text/plain", c.body, own)
		if got.Status != c.status || !slices.Equal(got.Fields, c.want) || len(got.Body) > 0 && string(got.Body) != c.body || c.status != 200 && len(got.Body) > 0 {
			t.Errorf("%d with %q: %+v, want fields %v", c.status, c.body, got, c.want)
		}
	}
}

func TestRedirect_NothingEndsTheURL(t *testing.T) {
	got := Redirect(308, "https://a/b c\"<>\\#ä%41\r\nX: y?{z}")
	if want := "https://a/b%20c%22%3C%3E%5C#%C3%A4%41%0D%0AX:%20y?{z}"; got.Field("Location") != want || got.Status != 308 || got.Field("Content-Length") != "0" {
		t.Errorf("got %+v, want Location %s", got, want)
	}
}

func TestAnswer_WithLeavesTheOriginalAlone(t *testing.T) {
	a := Static(200, "", "", nil)
	a.Fields = slices.Grow(a.Fields, 10)
	q := &RateLimitFields{}
	one, two := a.WithRateLimitFields(q, Verdict{Decision: nil}), a
	one.Fields = append(one.Fields, Field{"X", "1"})
	if len(two.Fields) != 1 || len(a.Fields[:2]) == 2 && a.Fields[:2][1] == (Field{"X", "1"}) {
		t.Errorf("the answer that is shared has %v", a.Fields[:2])
	}
}

// What Weir says of an error can be said in the operator's words; what only the error knows stays.
func TestErrorTexts(t *testing.T) {
	e := NewErrorTexts([]Reject{
		{Status: 503, Body: `{"code": {status}, "after": {retry_after}, "id": "{request_id}"}`, ContentType: "application/json", Fields: []Field{{"X-Wait", "{retry_after}"}}},
		{Status: 400, Body: "no ({retry_after})", ContentType: "text/plain; charset=utf-8"},
		{Status: 405, Detail: "Ask {request_id}."},
		{Status: 404, Fields: []Field{{"X-Error", "{status}"}}},
	})
	busy := e.Replace(Unavailable(http.StatusServiceUnavailable, 1500*time.Millisecond, "", `a"b`), `a"b`, "")
	if string(busy.Body) != `{"code": 503, "after": 2, "id": "a\"b"}` || !json.Valid(busy.Body) {
		t.Errorf("503: %s", busy.Body)
	}
	for name, want := range map[string]string{"Retry-After": "2", "Cache-Control": "no-store", "Content-Type": "application/json", "X-Wait": "2", "Content-Length": "39"} {
		if got := busy.Field(name); got != want {
			t.Errorf("503: %s is %q; want %q", name, got, want)
		}
	}
	if got := string(e.Replace(Problem(http.StatusBadRequest, "why", "id"), "id", "").Body); got != "no (0)" {
		t.Errorf("400: %s", got)
	}
	method := e.Replace(NotAllowed([]string{"GET"}, "id"), "id", "")
	whole(t, method)
	if p := parse(t, method); p.Detail != "Ask id." || p.RequestID != "id" || method.Field("Allow") != "GET" {
		t.Errorf("405: %s %v", method.Body, method.Fields)
	}
	missing := e.Replace(Problem(http.StatusNotFound, "", "id"), "id", "")
	whole(t, missing)
	if was := Problem(http.StatusNotFound, "", "id"); string(missing.Body) != string(was.Body) || missing.Field("X-Error") != "404" {
		t.Errorf("404: %s %v; want the same with a field", missing.Body, missing.Fields)
	}
	for _, texts := range []ErrorTexts{e, nil} { // of which none has this status
		if a := texts.Replace(Problem(http.StatusBadGateway, "", "id"), "id", ""); string(a.Body) != string(Problem(http.StatusBadGateway, "", "id").Body) {
			t.Errorf("502: %s", a.Body)
		}
	}
}

// A client that needs a token learns so, and what is wrong with the one it sent.
func TestUnauthorized_HasAChallenge(t *testing.T) {
	a := Unauthorized(`Bearer realm="a.example"`, "jwt:sub: key missing", "id")
	whole(t, a)
	if a.Status != 401 || a.Field("WWW-Authenticate") != `Bearer realm="a.example"` || parse(t, a).Detail != "jwt:sub: key missing" {
		t.Errorf("%d %v %s", a.Status, a.Fields, a.Body)
	}
}

func TestOf_KnowsTheErrorsOfBelow(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("take: %w", limiter.ErrUnavailable), StoreUnavailable},
		{fmt.Errorf("%w: %w", limiter.ErrUnavailable, context.Canceled), StoreUnavailable},
		{limiter.ErrInvalidCost, http.StatusBadRequest},
		{limiter.ErrInvalidLimit, http.StatusInternalServerError},
		{fmt.Errorf("read: %w", context.Canceled), ClientGone},
		{&http.MaxBytesError{Limit: 3}, http.StatusRequestEntityTooLarge},
		{errors.New("secret of the house"), http.StatusInternalServerError},
	} {
		if got := StatusOf(c.err); got != c.want {
			t.Errorf("StatusOf(%v) = %d, want %d", c.err, got, c.want)
		}
		if a := Problem(StatusOf(c.err), "", ""); strings.Contains(string(a.Body), "secret") {
			t.Errorf("body %s leaks the error", a.Body)
		}
	}
}

func TestProblem_ReadsWellInAnyDetail(t *testing.T) {
	for _, detail := range []string{"", `"quoted"`, "line\nbreak", "\xff\xfe", "</script>", strings.Repeat("x", 5000)} {
		a := Problem(http.StatusBadRequest, detail, detail)
		whole(t, a)
		if got := parse(t, a).Detail; got != strings.ToValidUTF8(detail, "\uFFFD\uFFFD") && got != detail {
			t.Errorf("detail %q came back as %q", detail, got)
		}
	}
}

func TestUnavailable_RetryAfterIsRoundedUpAndNeverZero(t *testing.T) {
	for wait, want := range map[time.Duration]string{-time.Second: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2"} {
		if got := Unavailable(http.StatusServiceUnavailable, wait, "", "").Field("Retry-After"); got != want {
			t.Errorf("Retry-After %s for %v, want %s", got, wait, want)
		}
	}
}

// TestAnswer_ThroughNetHTTP sends an answer as a handler of net/http does.
func TestAnswer_ThroughNetHTTP(t *testing.T) {
	a := mustQuota(t, IETF, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: refused()})
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "text/plain") // replaced
	a.CopyTo(w.Header())
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
	res := w.Result()
	defer res.Body.Close()
	if res.StatusCode != 429 || res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("Retry-After") != "42" {
		t.Errorf("got %s %v", res.Status, res.Header)
	}
}

func TestInto_KeepsLinesOfOneName(t *testing.T) {
	h := http.Header{"A": {"old"}}
	Response{Fields: []Field{{"A", "1"}, {"A", "2"}, {"B", "3"}}}.CopyTo(h)
	same(t, h, http.Header{"A": {"1", "2"}, "B": {"3"}})
	if got := (Response{}).Field("A"); got != "" {
		t.Errorf("field %q of an empty answer", got)
	}
}
