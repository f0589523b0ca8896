package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// Every process with this Redis shares the limit.
func ExampleNew() {
	client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{"127.0.0.1:6379"}, Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{Timeout: time.Second})
	defer store.Close()

	limit := &limiter.Limit{Name: "sms.phone:1h", Rate: limiter.Rate{Count: 3, Window: time.Hour}}
	claims := []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("+8613800138000"), Cost: 2}}
	var d limiter.Decision
	err = store.Take(context.Background(), claims, &d)
	fmt.Println("allowed:", d.Allowed, "left:", d.Outcomes[0].Remaining, err)
}

// A store for a Redis on this machine. It dials nothing before it is used.
func ExampleNewClient() {
	client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{"127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{})
	defer store.Close()

	fmt.Println("may be asked:", store.Available())
	// Output: may be asked: true
}

// A limiter that Java programs share: the RRateLimiter named sms.
func ExampleStore_RateLimiter() {
	client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{"127.0.0.1:6379"}, Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{Timeout: time.Second})
	defer store.Close()
	ctx := context.Background()

	sms, err := store.RateLimiter("sms", "")
	if err != nil {
		log.Fatal(err)
	}
	created, err := sms.TrySetRate(ctx, redisstore.RateConfig{Rate: limiter.Rate{Count: 5, Window: time.Hour}, KeepAlive: 24 * time.Hour})
	fmt.Println("created:", created, err)
	outcome, err := sms.Allow(ctx, 1)
	fmt.Println("allowed:", outcome.Allowed, "left:", outcome.Remaining, err)
}
