package respond

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func copied(a Response) Response {
	return Response{Status: a.Status, Fields: append([]Field(nil), a.Fields...), Body: append([]byte(nil), a.Body...)}
}

// rendered is how the downstream of these tests sends fields.
func rendered(fields []Field) *string {
	s := fmt.Sprint(fields)
	return &s
}

// A cache answers as if it were not there, byte for byte, for several routes and clients at once. A refusal that is
// repeated is found.
func TestCache_AnswersAreThoseOfTheLimits(t *testing.T) {
	c := NewCache(rendered)
	var found atomic.Int64
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			var kept Buffer
			for n := range 100 {
				policies, v := draw(rng)
				policies[0].IsOther, policies[0].Limit = n%5 == 0, "a"
				style := []Style{IETF, XRateLimit, None}[n%3]
				l, err := NewRateLimitFields(policies, style, Reject{Body: []string{"", "no id", "{limit} {request_id}"}[n%3], Fields: []Field{{"X-Wait", "{retry_after}"}}})
				if err != nil {
					t.Error(err)
					return
				}
				if n%7 == 0 {
					v.Without = []string{"a"}
				}
				for i := range 3 * cacheAfter {
					r := Refusal{Verdict: v, RequestID: fmt.Sprintf("id-%026d", rng.Int64()), Jitter: time.Duration(i/(2*cacheAfter)) * time.Second}
					want := l.TooManyRequests(r)
					r.Buffer = &kept
					got, block := c.TooManyRequests(l, &r)
					if !reflect.DeepEqual(copied(got), copied(want)) {
						t.Errorf("%v %s; want %v %s", got.Fields, got.Body, want.Fields, want.Body)
					}
					if block != nil {
						found.Add(1)
						if *block != *rendered(withoutLength(want.Fields)) {
							t.Errorf("rendered %s of %v", *block, want.Fields)
						}
					}
				}
			}
		})
	}
	all.Wait()
	if found.Load() == 0 {
		t.Error("no refusal was found")
	}
	l := mustQuota(t, IETF, phone())
	var b Buffer
	for i := range cacheAfter + 3 {
		if _, block := c.TooManyRequests(l, &Refusal{Verdict: Verdict{Decision: refused().Decision, Buffer: &b}, RequestID: "number-1"}); (block != nil) != (i > cacheAfter) {
			t.Errorf("refusal %d is found: %v; want those after as many equal ones", i, block != nil)
		}
	}
}

func withoutLength(fields []Field) (all []Field) {
	for _, f := range fields {
		if f.Name != "Content-Length" {
			all = append(all, f)
		}
	}
	return all
}

// A refusal that has the id of its request elsewhere than once in its body is never that of another one.
func TestCache_IDsAreNeverThoseOfOthers(t *testing.T) {
	for _, reject := range []Reject{{Fields: []Field{{"X-Id", "{request_id}"}}}, {Body: "{request_id} {request_id}"}, {Detail: "Ask for {request_id}."}} {
		l, err := NewRateLimitFields([]Policy{phone()}, IETF, reject)
		if err != nil {
			t.Fatal(err)
		}
		c, b := NewCache(rendered), Buffer{}
		for i := range 2 * cacheAfter {
			r := Refusal{Verdict: Verdict{Decision: refused().Decision}, RequestID: fmt.Sprint("number-", i)}
			want := l.TooManyRequests(r)
			r.Buffer = &b
			if got, _ := c.TooManyRequests(l, &r); !reflect.DeepEqual(copied(got), copied(want)) {
				t.Errorf("%v %s; want %v %s", got.Fields, got.Body, want.Fields, want.Body)
			}
		}
	}
}

// A refusal that the downstream cannot render is not kept.
func TestCache_UnrenderedRefusalsAreNotKept(t *testing.T) {
	l, b := mustQuota(t, IETF, phone()), Buffer{}
	c := NewCache(func([]Field) *string { return nil })
	for range 2 * cacheAfter {
		if _, block := c.TooManyRequests(l, &Refusal{Verdict: Verdict{Decision: refused().Decision, Buffer: &b}, RequestID: "id"}); block != nil {
			t.Error("it was kept")
		}
	}
}
