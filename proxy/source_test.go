package proxy

import (
	"fmt"
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

// An address that invents keys uses up its share of the room for new ones, and not
// that of others.
func TestServe_OneAddressLeavesRoomForOthersKeys(t *testing.T) {
	w := newProxy(t, "client_ip: {trusted_proxies: [192.0.2.0/24]}\n"+limitYAML("{name: phone, key: header:X-Phone, rate: 1/1h}"), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1000})
	})
	for i := range 5000 {
		w.send("GET", "/a", fmt.Sprintf("X-Phone: m%d", i), from("203.0.113.66"))
	}
	for i := range 50 {
		w.sends(200, "GET", "/a", fmt.Sprintf("X-Phone: %d", i), from("203.0.113.7"))
		w.sends(429, "GET", "/a", fmt.Sprintf("X-Phone: %d", i), from("203.0.113.7"))
	}
}
