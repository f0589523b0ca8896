package respond

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// phone, day and hidden are the policies of the route that most tests speak of.
func phone() Policy { return Policy{Name: "phone-1m", Rate: rate("1/60s"), Expose: true} }
func day() Policy   { return Policy{Name: "phone-1d", Rate: rate("10/24h"), Expose: true} }
func hidden() Policy {
	return Policy{Name: "spray", Rate: rate("20/10m")}
}

func rate(s string) limiter.Rate {
	r, err := limiter.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

func mustQuota(t testing.TB, style Style, policies ...Policy) *RateLimitFields {
	t.Helper()
	q, err := NewRateLimitFields(policies, style, Reject{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// refused is what phone, day and hidden say when only the first refuses.
func refused() Verdict {
	return Verdict{Decision: &limiter.Decision{
		Wait: 41200 * time.Millisecond,
		Outcomes: []limiter.Outcome{
			{Wait: 41200 * time.Millisecond},
			{Allowed: true, Remaining: 7},
			{Allowed: true, Remaining: 3},
		},
	}}
}

// TestGolden_EveryAnswerOfOurs holds each answer to its file. With
// UPDATE_GOLDEN=1 the files are written anew.
func TestGolden_EveryAnswerOfOurs(t *testing.T) {
	ietf := mustQuota(t, IETF, phone(), day(), hidden())
	worded, err := NewRateLimitFields([]Policy{phone(), day(), hidden()}, IETF, Reject{Status: 403, Detail: `Say "no" for {retry_after} s, {retry_after}!`})
	if err != nil {
		t.Fatal(err)
	}
	onlyHidden := Verdict{Decision: &limiter.Decision{
		Wait:     90 * time.Second,
		Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 1}, {Allowed: true, Remaining: 7}, {Wait: 90 * time.Second}},
	}}
	answers := map[string]Response{
		"refused":             ietf.TooManyRequests(Refusal{Verdict: refused(), RequestID: "req-1"}),
		"refused-jitter":      ietf.TooManyRequests(Refusal{Verdict: refused(), Jitter: 2 * time.Second}),
		"refused-hidden":      ietf.TooManyRequests(Refusal{Verdict: onlyHidden, RequestID: "req-1"}),
		"refused-worded":      worded.TooManyRequests(Refusal{Verdict: refused()}),
		"refused-x-ratelimit": mustQuota(t, XRateLimit, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: refused()}),
		"refused-none":        mustQuota(t, None, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: refused()}),
		"not-allowed":         NotAllowed([]string{"GET", "POST"}, "req-1"),
		"store-unavailable":   Unavailable(StoreUnavailable, 1500*time.Millisecond, "", "req-1"),
		"no-upstream":         Unavailable(http.StatusServiceUnavailable, 0, "", "req-1"),
		"last-hop-options":    MaxForwards("OPTIONS", "req-1"),
		"last-hop-trace":      MaxForwards("TRACE", "req-1"),
		"key-missing":         Problem(KeyMissing, "header X-Phone is missing", "req-1"),
	}
	for i, status := range []int{500, 400, 400, 400, 404, 405, 408, 413, 414, 421, 431, ClientGone, 501, 502, 503, 503, 503, 504, 508, 403} {
		answers["problem-"+strconv.Itoa(i)+"-"+strconv.Itoa(status)] = Problem(status, "", "req-1")
	}
	for name, a := range answers {
		t.Run(name, func(t *testing.T) {
			golden(t, name, a)
			whole(t, a)
		})
	}
}

// golden compares a, written like a response, with its file.
func golden(t *testing.T, name string, a Response) {
	t.Helper()
	var got bytes.Buffer
	fmt.Fprintf(&got, "%d\n", a.Status)
	for _, f := range a.Fields {
		fmt.Fprintf(&got, "%s: %s\n", f.Name, f.Value)
	}
	fmt.Fprintf(&got, "\n%s", a.Body)
	file := filepath.Join("testdata", name+".golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("answer %s:\n%s\nwant:\n%s", name, got.Bytes(), want)
	}
}

// whole checks what every answer promises, as a client would see it.
func whole(t *testing.T, a Response) {
	t.Helper()
	h := http.Header{}
	a.CopyTo(h)
	if h.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", h.Get("Cache-Control"))
	}
	if h.Get("Content-Length") != strconv.Itoa(len(a.Body)) {
		t.Errorf("Content-Length %s, body has %d bytes", h.Get("Content-Length"), len(a.Body))
	}
	if len(a.Body) == 0 {
		return
	}
	if h.Get("Content-Type") != "application/problem+json" {
		t.Errorf("Content-Type %q", h.Get("Content-Type"))
	}
	p := parse(t, a)
	if p.Status != a.Status {
		t.Errorf("member status %d under status line %d", p.Status, a.Status)
	}
	if p.Type == "" || p.Title == "" {
		t.Errorf("type %q, title %q; want both", p.Type, p.Title)
	}
}

// parse reads the problem in a strictly, with the members of RFC 9457 and the
// two that are ours.
func parse(t testing.TB, a Response) (p struct {
	Type, Title, Detail string
	Status              int
	RequestID           string   `json:"request_id"`
	Violated            []string `json:"violated-policies"`
},
) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("body %q: %v", a.Body, err)
	}
	return p
}
