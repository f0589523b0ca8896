package respond

import (
	"encoding/json"
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

// A refusal begins with the fields that are the same in all, except for a client with
// overrides, whose policies differ.
func TestTooManyRequests_BeginsWithTheConstantFields(t *testing.T) {
	q := mustQuota(t, IETF,
		Policy{Name: "a", Rate: rate("1/60s"), Expose: true, Limit: "a"},
		Policy{Name: "a", Rate: rate("7/1h"), Expose: true, Limit: "a", Override: true})
	refuse := func(policy int) Response {
		return q.TooManyRequests(Refusal{Verdict: Verdict{Policies: []int{policy}, Decision: &limiter.Decision{Outcomes: []limiter.Outcome{{Wait: time.Second}}}}})
	}
	constant := q.RefusalFields()
	a := refuse(0)
	if a.Constant != len(constant) || a.Constant != 3 || !slices.Equal(a.Fields[:a.Constant], constant) {
		t.Errorf("%d constant fields of %v; want %v first", a.Constant, a.Fields, constant)
	}
	a = refuse(1)
	if got, want := a.Field("RateLimit-Policy"), `"a";q=7;w=3600`; a.Constant != 0 || got != want {
		t.Errorf("%d constant fields, and the policy %s; want none, and %s", a.Constant, got, want)
	}
	if !slices.Equal(q.RefusalFields(), constant) {
		t.Errorf("the constant fields became %v; want %v", q.RefusalFields(), constant)
	}
}

// Browsers show a refusal to a page of another origin only if a field has that origin. Only what is an origin is
// repeated.
func TestTooMany_Origin(t *testing.T) {
	cors := []Field{{"Access-Control-Allow-Credentials", "true"}, {"Access-Control-Allow-Origin", "{origin}"}, {"X-Reason", "{limit}"}}
	q, r := refusing(t, Reject{Fields: cors})
	texts := NewErrorTexts(map[int]ErrorText{403: {Fields: cors[:2]}})
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
		for range cacheAfter + 2 {
			answer, _ := kept.TooManyRequests(q, &Refusal{Verdict: Verdict{Decision: r.Decision, Buffer: new(Buffer)}, RequestID: "id", Origin: sent})
			for how, a := range map[string]Response{
				"refusal": q.TooManyRequests(r), "kept": answer, "challenge": q.Challenge(Challenge{Name: "c"}, r), "error": texts.Replace(Problem(Forbidden, "", "id"), "id", sent),
			} {
				if got := a.Field("Access-Control-Allow-Origin"); got != want || a.Field("Vary") != "Origin" || a.Field("Access-Control-Allow-Credentials") != "true" {
					t.Fatalf("%s for %q: %v", how, sent, a.Fields)
				}
			}
		}
	}
	q, r = refusing(t, Reject{Fields: cors[:1]})
	if r.Origin = "https://app.example"; q.TooManyRequests(r).Field("Vary") != "" {
		t.Error("a response varies that has no origin")
	}
}
