package redisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// Two processes share a limit through one Redis.
func ExampleNew() {
	server := miniredis.NewMiniRedis() // yours is a real one
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	ctx := context.Background()
	limit := &limiter.Limit{Name: "sms.phone:1h", Rate: limiter.Rate{Count: 3, Window: time.Hour}}
	claims := []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("+8613800138000"), Cost: 2}}
	for _, process := range []string{"one", "two"} {
		client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{server.Addr()}, Timeout: time.Second})
		if err != nil {
			fmt.Println(err)
			return
		}
		store := redisstore.New(client, redisstore.Options{Timeout: time.Second})
		var d limiter.Decision
		err = store.Take(ctx, claims, &d)
		fmt.Println(process, "allowed:", d.Allowed, "left:", d.Outcomes[0].Remaining, err)
		store.Close()
		client.Close()
	}
	// Output:
	// one allowed: true left: 1 <nil>
	// two allowed: false left: 1 <nil>
}
