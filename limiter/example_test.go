package limiter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// One code a minute and three an hour to each phone number.
func Example() {
	clock := time.Date(2027, 1, 15, 12, 0, 0, 0, time.UTC)
	store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return clock }})
	minute := &limiter.Limit{Name: "sms.phone:1m", Rate: limiter.Rate{Count: 1, Window: time.Minute}}
	hour := &limiter.Limit{Name: "sms.phone:1h", Rate: limiter.Rate{Count: 3, Window: time.Hour}}
	phone := limiter.KeyOf("phone", "+8613800138000")
	claims := []limiter.Claim{{Limit: minute, Key: phone, Cost: 1}, {Limit: hour, Key: phone, Cost: 1}}

	var d limiter.Decision
	for _, pause := range []time.Duration{0, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		clock = clock.Add(pause)
		if err := store.Take(context.Background(), claims, &d); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(clock.Format("15:04:05"), "allowed:", d.Allowed, "wait:", d.Wait)
	}
	// Output:
	// 12:00:00 allowed: true wait: 0s
	// 12:00:20 allowed: false wait: 40s
	// 12:01:00 allowed: true wait: 0s
	// 12:02:00 allowed: true wait: 0s
	// 12:03:00 allowed: false wait: 57m0s
}

// What was taken for work that never happened is given back, once.
func ExampleStore() {
	var store limiter.Store = limiter.NewMemory(limiter.MemoryOptions{})
	limit := &limiter.Limit{Name: "mail", Rate: limiter.Rate{Count: 2, Window: time.Hour}}
	claims := []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("alice"), Cost: 1}}
	ctx := context.Background()

	var d limiter.Decision
	store.Take(ctx, claims, &d)
	store.Refund(ctx, claims, d.Permit)
	store.Refund(ctx, claims, d.Permit)
	store.Peek(ctx, claims, &d)
	fmt.Println(d.Outcomes[0].Remaining, "left")
	// Output: 2 left
}

// At most two downloads at a time; a permit whose holder dies comes back after
// its lease.
func ExampleAdminStore() {
	clock := time.UnixMilli(0)
	var store limiter.AdminStore = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return clock }})
	limit := &limiter.Limit{Name: "downloads", Rate: limiter.Rate{Count: 2, Window: 30 * time.Second}, Algorithm: limiter.Concurrent}
	claims := []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("bob"), Cost: 1}}
	ctx := context.Background()

	var lives, dies, next limiter.Decision
	store.Take(ctx, claims, &lives)
	store.Take(ctx, claims, &dies)
	store.Take(ctx, claims, &next)
	fmt.Println("a third:", next.Allowed)

	clock = clock.Add(20 * time.Second)
	fmt.Println("renew:", store.Renew(ctx, claims, lives.Permit))
	clock = clock.Add(10 * time.Second)
	store.Take(ctx, claims, &next)
	fmt.Println("after the lease of the dead:", next.Allowed, "left:", next.Outcomes[0].Remaining)
	// Output:
	// a third: false
	// renew: <nil>
	// after the lease of the dead: true left: 0
}

// One in 20 ms, and who comes too early waits for up to a second.
func ExampleWaitQueue() {
	store := limiter.NewMemory(limiter.MemoryOptions{})
	queue := limiter.NewWaitQueue(store, time.Second)
	limit := &limiter.Limit{Name: "search", Rate: limiter.Rate{Count: 1, Window: 20 * time.Millisecond}}
	claims := []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("carol"), Cost: 1}}

	second := limiter.WaitOptions{MaxWait: []time.Duration{time.Second}, MaxWaiting: 100}
	var at []time.Time // by the store's clock
	for range 3 {
		var d limiter.Decision
		if err := queue.Wait(context.Background(), claims, &d, second); err != nil || !d.Allowed {
			fmt.Println(d, err)
		}
		at = append(at, d.At)
	}
	fmt.Println("three took 40 ms or more:", at[2].Sub(at[0]) >= 40*time.Millisecond)
	// Output: three took 40 ms or more: true
}

func ExampleParseRate() {
	for _, s := range []string{"5/60s", "10/1d", "10/d", "10 per day", "10/day"} {
		r, err := limiter.ParseRate(s)
		fmt.Println(r, err)
	}
	// Output:
	// 5/1m <nil>
	// 10/1d <nil>
	// 10/1d <nil>
	// 10/1d <nil>
	// 0/0s not a rate: "10/day"; the unit is a letter, for example 10/1d
}
