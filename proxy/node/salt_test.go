package node

import (
	"net/http"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/redistest"
)

// Two nodes that share a Redis write the same hash of one key, which is not that of
// anybody who knows the key.
func TestSalt_NodesOfOneRedisWriteTheSameHashes(t *testing.T) {
	server := redistest.Start(t)
	yaml := "store: redis\nredis: {addrs: ['" + server.Addr + "'], timeout: 5s}\nlisten: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n" +
		"routes: [{match: {path: /a}, upstream: echo, limits: [{key: 'header:X-Phone', rate: 1/1h}]}]\nupstreams: {echo: echo}\n"
	var hashes []any
	for node := range 3 {
		n := mustStart(t, write(t, yaml))
		r, err := http.NewRequest("GET", "http://"+n.Address("http")+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Phone", "13800138000")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if line := n.waitForLog("request"); node > 0 { // the first one lets it pass
			hashes = append(hashes, line["key"])
		}
	}
	if hashes[0] != hashes[1] || hashes[0] == nil {
		t.Errorf("hashes %v of one key; want the same", hashes)
	}
}

// A weir that cannot ask has a salt of its own, and takes up that of all when it can.
func TestSalt_BeforeAndAfterTheOthersCanBeAsked(t *testing.T) {
	server := redistest.Start(t)
	c, err := config.Load(writeConfig(t, "store: redis\nredis: {addrs: ['"+server.Addr+"']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := redisClient(c.Redis, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	one, other := newSalt(store{client: client, prefix: "weir"}), newSalt(store{client: client, prefix: "weir"})
	if one.value() == other.value() {
		t.Error("two processes have made the same salt")
	}
	if !one.agree(t.Context()) || !other.agree(t.Context()) || one.value() != other.value() {
		t.Error("two processes do not agree")
	}
	before := newSalt(store{client: client, prefix: "weir"})
	own := before.value()
	server.Kill()
	if before.agree(t.Context()) || before.value() != own {
		t.Error("want the own salt while nobody can be asked")
	}
	newSalt(store{}).run(t.Context()) // shares nothing, and returns
}
