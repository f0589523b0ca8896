package test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

var recordAs = flag.String("record", "", "write testdata/recorded/`VERSION`.json, what this release leaves after two pushes")

// A recordedPush is what a release left after two pushes, of the revisions 1 and 2.
type recordedPush struct {
	Redis map[string][]string // keys that stay: "string", "list" or "hash", then the values
	Kept  string              // the file of reload.keep
}

// recordPush runs two pushes of this Weir and writes what is left.
func recordPush(t *testing.T, file string) {
	t.Helper()
	server := redistest.Start(t)
	w := start(t, redisYAML(server.Addr)+"reload: {source: redis, keep: kept.json}\n"+revisionYAML(0))
	w.push(revisionYAML(1), "ann")
	w.push(revisionYAML(2), "bob")
	allServe(t, []*weir{w}, 2)
	var r recordedPush
	await.Until(t, "the second push is kept", func() bool {
		text, err := os.ReadFile(filepath.Join(w.Dir, "kept.json"))
		r.Kept = string(text)
		return err == nil && strings.Contains(r.Kept, `"bob"`)
	})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	r.Redis = map[string][]string{}
	ctx := t.Context()
	for _, key := range client.Keys(ctx, "*").Val() {
		if ttl := client.PTTL(ctx, key).Val(); ttl > 0 && ttl < time.Hour {
			continue // of the node that runs
		}
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			r.Redis[key] = []string{kind, client.Get(ctx, key).Val()}
		case "list":
			r.Redis[key] = append([]string{kind}, client.LRange(ctx, key, 0, -1).Val()...)
		case "hash":
			r.Redis[key] = []string{kind}
			for field, value := range client.HGetAll(ctx, key).Val() {
				r.Redis[key] = append(r.Redis[key], field, value)
			}
		default:
			t.Logf("%s, a %s, is not recorded", key, kind)
		}
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text)+"\n")
}

// recordedPushes are those of all releases, by the name of the file.
func recordedPushes(t *testing.T) map[string]recordedPush {
	t.Helper()
	if *recordAs != "" {
		recordPush(t, filepath.Join("testdata", "recorded", *recordAs+".json"))
	}
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no release is recorded: %v", err)
	}
	all := map[string]recordedPush{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r recordedPush
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		all[file] = r
	}
	return all
}

// What an earlier release pushed is served from Redis, listed and rolled back to; and from
// the file in which it was kept while Redis is away. -record VERSION records this one.
func TestRecorded_PushesOfReleasesAreServed(t *testing.T) {
	t.Parallel()
	for file, r := range recordedPushes(t) {
		server := redistest.Start(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		for key, values := range r.Redis {
			var err error
			switch ctx := t.Context(); values[0] {
			case "string":
				err = client.Set(ctx, key, values[1], 0).Err()
			case "list":
				err = client.RPush(ctx, key, values[1:]).Err()
			case "hash":
				err = client.HSet(ctx, key, values[1:]).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w := start(t, followerYAML(server.Addr))
		allServe(t, []*weir{w}, 2)
		_, history, _ := w.admin(t.TempDir(), "history")
		if !strings.Contains(history, "  ann  ") || !strings.Contains(history, "  bob  ") {
			t.Errorf("%s: the history is %s", file, history)
		}
		if code, stdout, stderr := w.admin(t.TempDir(), "rollback"); code != 0 {
			t.Errorf("%s: rollback exits %d: %s%s", file, code, stdout, stderr)
		}
		allServe(t, []*weir{w}, 1)

		dir := t.TempDir()
		write(t, filepath.Join(dir, "kept.json"), r.Kept)
		write(t, filepath.Join(dir, "weir.yaml"), redisYAML("127.0.0.1:1")+"reload: {source: redis, keep: kept.json}\n"+revisionYAML(0)+weirtest.Listeners)
		if got := startWith(t, dir, "-c", "weir.yaml").servedRevision(); got != "2" {
			t.Errorf("%s: without Redis it serves revision %s, want the one that was kept", file, got)
		}
	}
}
