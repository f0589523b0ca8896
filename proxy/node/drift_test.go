package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// Every node says limit by limit what makes the odd one out differ, without the values of sensitive keys; a node
// that does not say what it serves is named.
func TestDrift_IsShownLimitByLimit(t *testing.T) {
	redis := "store: redis\nredis: {addrs: ['" + redistest.Start(t).Addr + "'], timeout: 5s}\n"
	yaml := "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n" + redis + `privacy: {hash_secret: "01234567890123456789012345678901"}
keys: {phone: {from: "header:X-Phone", sensitive: true}}
lists: {friends: {key: phone, values: [%s], action: bypass}}
routes: [{name: sms, match: {path: /a}, respond: {body: ok}, lists: [friends], limits: [{name: phone, key: phone, rate: %s}]}]
`
	same := write(t, fmt.Sprintf(yaml, "one-number", "5/1m"))
	first, _, odd := mustStart(t, same), mustStart(t, same), mustStart(t, write(t, fmt.Sprintf(yaml, "another-number", "3/1m")))
	for _, n := range []*testNode{first, odd} {
		var groups []admin.NodeGroup
		await.Until(t, "three nodes are known, and answer", func() bool { // one that did not is asked again after unknownTTL
			groups = answered[admin.Nodes](t, n, "/api/v1/nodes").Configurations
			return len(groups) == 2 && len(groups[0].Nodes) == 2 && groups[1].Unknown == ""
		})
		lines := groups[1].Differences()
		if len(lines) != 2 || lines[0] != "sms.phone: 5/1m → 3/1m" || !strings.HasPrefix(lines[1], "list friends: ") || strings.Contains(lines[1], "number") || groups[0].Changes != nil {
			t.Errorf("%q; want the rate, and that the list differs", lines)
		}
	}
	mute := cluster.Join(first.store.client, cluster.Options{Prefix: first.store.prefix, ID: "mute", Source: "file"})
	ended := make(chan bool)
	go func() { mute.Run(t.Context(), "127.0.0.1:1"); close(ended) }()
	t.Cleanup(func() { <-ended })
	await.Until(t, "the silent node is named, beside what is known of the other", func() bool {
		groups := answered[admin.Nodes](t, first, "/api/v1/nodes").Configurations
		return len(groups) == 3 && slices.ContainsFunc(groups, func(g admin.NodeGroup) bool { return g.Unknown == "mute did not say what it serves" }) &&
			slices.ContainsFunc(groups, func(g admin.NodeGroup) bool { return len(g.Changes) == 2 })
	})
}
