package sends_test

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/sends"
)

// A counted is a limit with a conversion in a store, with what counts its requests.
type counted struct {
	t       *testing.T
	store   *limiter.Memory
	limit   limiter.Limit
	notes   limiter.Limit
	counter *sends.Counter
	key     limiter.Key
}

func newCounted(t *testing.T) *counted {
	c := &counted{
		t: t, store: limiter.NewMemory(limiter.MemoryOptions{}), key: limiter.KeyOf("country", "CN"), notes: sends.Unlimited("r.l:shadow:refused", time.Hour),
		limit: limiter.Limit{Name: "r.l:1h", Rate: limiter.Rate{Count: 2, Window: time.Hour}, Algorithm: limiter.Conversion, Conversion: 50, Noted: true},
	}
	c.counter = sends.NewCounter(sends.Options{ID: "r.l", Window: time.Hour, Buckets: true, Notes: &c.notes})
	return c
}

func (c *counted) take(claims ...limiter.Claim) limiter.Decision {
	c.t.Helper()
	var d limiter.Decision
	if err := c.store.Take(c.t.Context(), claims, &d); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// send sends to a subject as shadow mode does, and counts it.
func (c *counted) send(subject string) {
	c.t.Helper()
	value := limiter.KeyOf("number", subject)
	if c.take(limiter.Claim{Limit: &c.limit, Key: c.key, Cost: 1, Value: value}).Allowed {
		c.take(c.counter.Claims(sends.Counted, c.key, 1)...)
		return
	}
	c.take(append(c.counter.Claims(sends.Refused, c.key, 1), limiter.Claim{Limit: &c.notes, Key: c.key, Cost: 1, Value: value})...)
}

// use uses the codes of a subject.
func (c *counted) use(subject string) {
	c.t.Helper()
	for outcome, l := range map[sends.Outcome]*limiter.Limit{sends.Returned: &c.limit, sends.Wrong: &c.notes} {
		n, err := c.store.Return(c.t.Context(), []*limiter.Limit{l}, limiter.KeyOf("number", subject))
		if err != nil {
			c.t.Fatal(err)
		}
		if n > 0 {
			c.take(c.counter.AllClaims(outcome, int64(n))...)
		}
	}
}

func (c *counted) statuses(claims []limiter.Claim) []limiter.KeyStatus {
	c.t.Helper()
	in, err := c.store.Inspect(c.t.Context(), claims)
	if err != nil {
		c.t.Fatal(err)
	}
	return in.Statuses
}

// wants checks what is told of the key, and of all keys, which are the same.
func (c *counted) wants(want sends.Counts) {
	c.t.Helper()
	open := c.statuses([]limiter.Claim{{Limit: &c.limit, Key: c.key, Cost: 1}})[0].Used
	if got := c.counter.ReadKey(open, c.statuses(c.counter.OfKey(c.key))); got != want {
		c.t.Errorf("of the key %+v, want %+v", got, want)
	}
	if got := c.counter.ReadAll(c.statuses(c.counter.OfAll())); got != want {
		c.t.Errorf("of all keys %+v, want %+v", got, want)
	}
}

func TestCounter_TellsWhatWasUsed(t *testing.T) {
	c := newCounted(t)
	c.wants(sends.Counts{})
	for _, subject := range []string{"a", "b", "c", "d"} { // the last two would be refused
		c.send(subject)
	}
	c.wants(sends.Counts{Sent: 4, WouldRefuse: 2})
	c.use("c")
	c.use("a")
	c.use("a")
	c.use("nobody")
	c.wants(sends.Counts{Sent: 4, Used: 2, Ratio: 0.5, WouldRefuse: 2, Wrong: 1})
	c.send("e") // 1 of 3 are open
	c.take(c.counter.Claims(sends.Refunded, c.key, 1)...)
	if err := c.store.Grant(t.Context(), []limiter.Claim{{Limit: &c.limit, Key: c.key, Cost: 1}}); err != nil { // what is given back is not used
		t.Fatal(err)
	}
	c.wants(sends.Counts{Sent: 4, Used: 2, Ratio: 0.5, Refunded: 1, WouldRefuse: 2, Wrong: 1})
}

// What the limit counted and the counter did not, as while the store was unreachable, is not taken as used.
func TestCounter_NeverTellsMoreUsed(t *testing.T) {
	c := newCounted(t)
	c.take(limiter.Claim{Limit: &c.limit, Key: c.key, Cost: 2, Value: limiter.KeyOf("number", "a")})
	open := c.statuses([]limiter.Claim{{Limit: &c.limit, Key: c.key, Cost: 1}})[0].Used
	if got, want := c.counter.ReadKey(open, c.statuses(c.counter.OfKey(c.key))), (sends.Counts{Sent: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A limit without return_on counts nothing.
func TestCounter_NilCountsNothing(t *testing.T) {
	var c *sends.Counter
	if c.Claims(sends.Counted, limiter.Key{}, 1) != nil || c.AllClaims(sends.Wrong, 1) != nil {
		t.Error("a nil Counter has claims")
	}
}

// What is left of all keys beside those that are listed is never negative: they are not read at the same time.
func TestCounts_WithoutOthers(t *testing.T) {
	all := sends.Counts{Sent: 20, Used: 12, Refunded: 3, WouldRefuse: 4, Wrong: 1}
	listed := sends.Counts{Sent: 15, Used: 10, Refunded: 1, WouldRefuse: 2, Wrong: 1}
	if got, want := all.Without(listed), (sends.Counts{Sent: 5, Used: 2, Ratio: 0.4, Refunded: 2, WouldRefuse: 2}); got != want || got.Open() != 1 {
		t.Errorf("%+v with %d open, want %+v with 1", got, got.Open(), want)
	}
	if got := listed.Without(all); got != (sends.Counts{}) {
		t.Errorf("%+v, want nothing", got)
	}
}

// A range is compared with its country in the longest window that both have.
func TestShareOf_TheLongestCommonWindow(t *testing.T) {
	rates := func(window string, verified int64) sends.RateCounts {
		return sends.RateCounts{Window: window, Verified: verified}
	}
	for _, c := range []struct {
		ofRange, ofCountry []sends.RateCounts
		want               *sends.CountryShare
	}{
		{[]sends.RateCounts{rates("1h", 2), rates("1d", 5)}, []sends.RateCounts{rates("1d", 9), rates("1h", 4), rates("2d", 9)}, &sends.CountryShare{Limit: "unused", Window: "1d", Verified: 5, Of: 9, OverHalf: true}},
		{[]sends.RateCounts{rates("1h", 2)}, []sends.RateCounts{rates("1h", 4)}, &sends.CountryShare{Limit: "unused", Window: "1h", Verified: 2, Of: 4}},
		{[]sends.RateCounts{rates("1h", 1)}, []sends.RateCounts{rates("1h", 1)}, &sends.CountryShare{Limit: "unused", Window: "1h", Verified: 1, Of: 1}},
		{[]sends.RateCounts{rates("1h", 2)}, []sends.RateCounts{rates("1d", 2)}, nil},
		{[]sends.RateCounts{rates("1h", 0)}, []sends.RateCounts{rates("1h", 0)}, nil},
	} {
		got := sends.ShareOf("unused", c.ofRange, c.ofCountry)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%v of %v: %+v, want %+v", c.ofRange, c.ofCountry, got, c.want)
		}
	}
}
