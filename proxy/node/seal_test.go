package node

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

const (
	oneSecret   = "{hash_secret: first-secret-of-all-nodes}"
	otherSecret = "{hash_secret: second-secret-of-all-nodes}"
	bothSecrets = "{hash_secret: second-secret-of-all-nodes, previous_secret: first-secret-of-all-nodes}"
)

// sealingFile is the file of a node that follows pushes, with those secrets.
func sealingFile(t *testing.T, addr, privacy string) string {
	t.Helper()
	return writeConfig(t, "store: redis\nredis: {addrs: ['"+addr+"'], timeout: 5s}\nprivacy: "+privacy+"\n"+
		"reload: {source: redis, keep: "+filepath.Join(t.TempDir(), "kept.json")+"}\n")
}

// startSealing starts such a node, of which the others know, and returns a client of it.
func startSealing(t *testing.T, addr, privacy string) (*testNode, admin.Client) {
	t.Helper()
	n := mustStart(t, sealingFile(t, addr, privacy))
	await.Until(t, "the node is heard of", func() bool {
		nodes, _, err := n.nodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(m view.Member) bool { return m.ID == n.store.id })
	})
	return n, admin.Client{Address: n.Address("admin")}
}

// numbers are those in phoneBundle.
func numbers() []string { return []string{"15550100", "15550101", "15550102", "15550103"} }

// phoneBundle has phone numbers in a list in place, in a file, among overrides and in a list of plans.
func phoneBundle(body string) bundle.Bundle {
	return bundle.Bundle{Main: "weir.yaml", Files: map[string]string{
		"weir.yaml": `keys: {phone: {from: "header:X-Phone", normalize: digits, sensitive: true}}
lists: {blocked: {key: phone, file: blocked.txt, action: deny}, test: {key: phone, values: ["15550101"], action: bypass}}
routes:
  - name: a
    match: {path: /a}
    respond: {body: "` + body + `"}
    lists: [blocked, test]
    limits: [{name: sms, key: phone, rate: 1/1h, overrides: {"15550102": 5/1h}, plan: {list: plans.txt}, plans: {pro: 9/1h}}]
`, "blocked.txt": "15550100\n", "plans.txt": "15550103=pro\n"}}
}

// A push that changes the secret says that counts are lost, unless previous_secret names the former one; so does one that has an
// empty one, and not one that has none, under which that of each node holds.
func TestSeal_WarnsOfAnotherSecret(t *testing.T) {
	n := mustStart(t, sealingFile(t, redistest.Start(t).Addr, oneSecret))
	t.Setenv("WEIR_FIRST", "first-secret-of-all-nodes")
	t.Setenv("WEIR_SECOND", "second-secret-of-all-nodes")
	for privacy, want := range map[string]bool{
		`{hash_secret: "${WEIR_FIRST}"}`: false, `{hash_secret: "${WEIR_SECOND}", previous_secret: "${WEIR_FIRST}"}`: false,
		`{hash_secret: "${WEIR_SECOND}"}`: true, `{previous_secret: "${WEIR_FIRST}"}`: true, "{hash_secret: ''}": true,
		"{}": false, "{log_client: none}": false,
	} {
		b := phoneBundle("one")
		b.Files["weir.yaml"] = "privacy: " + privacy + "\n" + b.Files["weir.yaml"]
		done, err := pushAPI{n.Node}.prepare(&cluster.Push{Bundle: b})
		if got := strings.Contains(fmt.Sprint(done.Changes), "privacy.hash_secret is another, or gone"); err != nil || got != want {
			t.Errorf("%s: %q, %v; want a warning: %v", privacy, done.Changes, err, want)
		}
	}
}

// Whoever pushes a file while it is written anew learns that it has no line, before all nodes serve it or, at the latest, then.
func TestPush_WarnsOfAFileThatIsEmptied(t *testing.T) {
	n, client := startSealing(t, redistest.Start(t).Addr, "{}")
	b := phoneBundle("one")
	p, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: b})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the push is served", func() bool { number, _ := n.proxy.Serving(); return number == p.Generation })
	const lost, cut = "blocked.txt: has lost all its lines", "blocked.txt: ends within a line"
	for text, want := range map[string]string{"": lost, "\n": lost, "# none\n": "", "15550104\n": "", "15550104\n1555": cut} {
		b.Files["blocked.txt"] = text
		done, err := pushAPI{n.Node}.prepare(&cluster.Push{Bundle: b})
		if got := strings.Join(done.Warnings, "\n"); err != nil || !strings.Contains(got, want) || want == "" && strings.Contains(got, "blocked.txt: ") {
			t.Errorf("%q: %q, %v; want %q", text, done.Warnings, err, want)
		}
	}
}

// readRedis returns all keys and values of a Redis, with what is compressed in a value as it is uncompressed.
func readRedis(t *testing.T, n *testNode) string {
	t.Helper()
	var all strings.Builder
	rdb := n.store.client
	keys, err := rdb.Keys(t.Context(), "*").Result()
	for _, key := range keys {
		var values []string
		kind := rdb.Type(t.Context(), key).Val()
		switch kind {
		case "string":
			values = []string{rdb.Get(t.Context(), key).Val()}
		case "hash":
			for name, value := range rdb.HGetAll(t.Context(), key).Val() {
				values = append(values, name, value)
			}
		case "list":
			values = rdb.LRange(t.Context(), key, 0, -1).Val()
		case "set":
			values = rdb.SMembers(t.Context(), key).Val()
		case "zset":
			values = rdb.ZRange(t.Context(), key, 0, -1).Val()
		case "stream":
			values = []string{fmt.Sprint(rdb.XRange(t.Context(), key, "-", "+").Val())}
		case "none": // it has expired
		default:
			t.Fatalf("%s is a %s, which this test does not read", key, kind)
		}
		for _, value := range values {
			var stored struct {
				Bundle []byte `json:"bundle"`
			}
			text := []byte(value)
			if json.Unmarshal(text, &stored) == nil {
				text = append(text, stored.Bundle...)
			}
			fmt.Fprintf(&all, "%s: %s\n", key, text)
			for i := bytes.Index(text, []byte("\x1f\x8b")); i >= 0 && i < len(text); i = len(text) {
				if r, err := gzip.NewReader(bytes.NewReader(text[i:])); err == nil {
					plain, _ := io.ReadAll(r)
					all.Write(plain)
				}
			}
		}
	}
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	return all.String()
}

// Whoever reads Redis finds no phone number of a configuration that was pushed: with a secret. Without one the push
// says which files tell them.
func TestSeal_NoNumberInRedis(t *testing.T) {
	for privacy, sealed := range map[string]bool{oneSecret: true, "{}": false} {
		n, client := startSealing(t, redistest.Start(t).Addr, privacy)
		for _, body := range []string{"one", "two"} {
			p, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle(body)})
			if err != nil || !p.Changed {
				t.Fatalf("%s: push = %+v, %v", privacy, p, err)
			}
			said := strings.Join(p.Warnings[1:], "\n") // the first is of the key
			if strings.Contains(fmt.Sprint(p.Changes), "privacy.hash_secret is another, or gone") {
				t.Errorf("%s: the push of %s says %q", privacy, body, p.Changes)
			}
			for _, file := range []string{"weir.yaml", "blocked.txt", "plans.txt"} {
				if strings.Contains(said, file) == sealed {
					t.Errorf("%s: the push says %q", privacy, said)
				}
			}
		}
		n.waitForLog("serving pushed config")
		found := readRedis(t, n)
		if !strings.Contains(found, "history") {
			t.Errorf("what was read of Redis has no history:\n%s", found)
		}
		for _, number := range numbers() {
			if strings.Contains(found, number) == sealed {
				t.Errorf("%s: %s is found in Redis: %v", privacy, number, !sealed)
			}
		}
		if plain := phoneBundle("two"); strings.Contains(found, plain.Hash()) == sealed {
			t.Errorf("%s: the hash of the contents, by which a short list is guessed, is found in Redis: %v", privacy, !sealed)
		}
		d, err := admin.Get[admin.Diff](t.Context(), client, fmt.Sprint("/history/", 3))
		if err != nil || !strings.Contains(d.Diff, "+    respond: {body: \"two\"}") {
			t.Errorf("%s: diff = %+v, %v", privacy, d, err)
		}
		for _, number := range numbers() {
			if shown := fmt.Sprint(d.Diff, d.Changes); strings.Contains(shown, number) {
				t.Errorf("%s: the history shows %s:\n%s", privacy, number, shown)
			}
		}
		back, err := admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{})
		if err != nil || back.From != 2 || !back.Changed || fetch(t, "http://"+n.Address("http")+"/a") == "two" {
			t.Errorf("%s: rollback = %+v, %v; want the first push", privacy, back, err)
		}
	}
}

// A node with another secret refuses a push, and says why to who pushes.
func TestSeal_AnotherSecretRefuses(t *testing.T) {
	for _, privacy := range []string{otherSecret, "{}"} {
		server := redistest.Start(t)
		_, client := startSealing(t, server.Addr, oneSecret)
		other, _ := startSealing(t, server.Addr, privacy)
		dry, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle("one"), DryRun: true})
		if !slices.ContainsFunc(dry.Nodes, func(a view.NodeAnswer) bool {
			return a.Node == other.store.id && strings.Contains(a.Said, "another privacy.hash_secret")
		}) || err != nil {
			t.Errorf("%s: dry run = %+v, %v", privacy, dry, err)
		}
		_, err = admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle("one")})
		var why *admin.Problem
		if !errors.As(err, &why) || why.Status != 409 || !strings.Contains(err.Error(), other.store.id+": encrypted with another privacy.hash_secret") || !strings.Contains(err.Error(), "privacy.previous_secret") {
			t.Errorf("%s: push: %v; want what is wrong on which node, and what to write", privacy, err)
		}
	}
}

// pushedElsewhere gives Redis a generation of a node with those secrets, as if it had been pushed while n was
// partitioned.
func pushedElsewhere(t *testing.T, n *testNode, privacy config.Privacy, generation int64) {
	t.Helper()
	seal := bundle.NewSeal(privacy)
	b := seal.Sign(phoneBundle("elsewhere"))
	text, err := json.Marshal(cluster.Entry{Entry: view.Entry{Generation: generation, Hash: b.Hash(), Author: "eve"}, Packed: seal.Pack(b)})
	if err != nil {
		t.Fatal(err)
	}
	prefix := n.store.prefix + ":{cluster}:"
	if err := n.store.client.LPush(t.Context(), prefix+"history", text).Err(); err != nil {
		t.Fatal(err)
	}
	if err := n.store.client.HSet(t.Context(), prefix+"config", "number", generation, "pushed", generation, "hash", b.Hash()).Err(); err != nil {
		t.Fatal(err)
	}
}

// A node that cannot read what the others serve keeps what it serves, and says so in its log and among the nodes. It does
// not start on anything else.
func TestSeal_WhatCannotBeRead(t *testing.T) {
	server := redistest.Start(t)
	n, client := startSealing(t, server.Addr, oneSecret)
	if _, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle("one")}); err != nil {
		t.Fatal(err)
	}
	pushedElsewhere(t, n, config.Privacy{HashSecret: "second-secret-of-all-nodes"}, 9)
	if line := n.waitForLog("cannot serve pushed config"); line["generation"] != 9.0 || !strings.Contains(fmt.Sprint(line["error"]), "another privacy.hash_secret") {
		t.Errorf("the log says %v", line)
	}
	await.Until(t, "the node says so", func() bool {
		nodes, err := admin.Get[admin.Nodes](t.Context(), client, "/nodes")
		return err == nil && slices.ContainsFunc(nodes.Nodes, func(m view.Member) bool {
			return strings.HasPrefix(m.Problem, "cannot read generation 9: encrypted with another privacy.hash_secret")
		})
	})
	if got := fetch(t, "http://"+n.Address("http")+"/a"); got == "elsewhere" {
		t.Errorf("it serves %q", got)
	}
	h, err := admin.Get[admin.History](t.Context(), client, "/history")
	if err != nil || len(h.History) == 0 || h.History[0].Author != "eve" {
		t.Errorf("history = %+v, %v; want what can be said without the secret", h, err)
	}
	for what, ask := range map[string]func() error{
		"rollback": func() error {
			_, err := admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{Generation: 9})
			return err
		},
		"diff": func() error {
			_, err := admin.Get[admin.Diff](t.Context(), client, fmt.Sprint("/history/", 9))
			return err
		},
	} {
		var why *admin.Problem
		if err := ask(); !errors.As(err, &why) || why.Status != 409 || !strings.Contains(why.Detail, "another privacy.hash_secret") {
			t.Errorf("%s: %v; want why", what, err)
		}
	}
	if _, err := startNode(t, sealingFile(t, server.Addr, oneSecret), nil); err == nil || !strings.Contains(err.Error(), "pushed config of generation 9: encrypted with another privacy.hash_secret") {
		t.Errorf("a start with the wrong secret: %v", err)
	}
}

// While the secret is replaced, nodes with both secrets read what either has encrypted. The same file pushed once more is
// encrypted with the new one; then the former is needed no more.
func TestSeal_Rotation(t *testing.T) {
	server := redistest.Start(t)
	n, client := startSealing(t, server.Addr, oneSecret)
	for _, body := range []string{"zero", "one"} {
		if _, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle(body)}); err != nil {
			t.Fatal(err)
		}
	}
	n.end()
	both, client := startSealing(t, server.Addr, bothSecrets)
	if got := fetch(t, "http://"+both.Address("http")+"/a"); got == "" || !servesNumber(both, 3) {
		t.Errorf("with both secrets it serves %q", got)
	}
	again, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle("one")})
	if err != nil || !again.Changed || again.Generation != 4 || len(again.Changes) != 0 {
		t.Errorf("the same once more = %+v, %v; want generation 4", again, err)
	}
	if again, err = admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: phoneBundle("one")}); err != nil || again.Changed {
		t.Errorf("the same a third time = %+v, %v; want no change", again, err)
	}
	would, err := admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{DryRun: true})
	if err != nil || would.From != 2 {
		t.Errorf("rollback = %+v, %v; want that it leads to other contents", would, err)
	}
	both.end()
	last, client := startSealing(t, server.Addr, otherSecret)
	if !servesNumber(last, 4) {
		t.Error("without the former secret it does not serve what was pushed with the new one")
	}
	if _, err = admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{}); err == nil || !strings.Contains(err.Error(), "no earlier generation") {
		t.Errorf("rollback to what nobody can read: %v", err)
	}
}

func servesNumber(n *testNode, want int64) bool {
	number, _ := n.proxy.Serving()
	return number == want
}

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
