package test

import (
	"compress/gzip"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A figure in a sentence of a page is that of the code: whoever changes a constant finds the sentence here, and
// whoever changes the sentence the constant. Durations are nanoseconds.
func TestDocuments_FiguresAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	scopes := map[string]*types.Package{}
	for _, row := range []struct{ page, text, dir, holds string }{
		{"proxy/docs/commands.md", "the last 6,144 refused requests and the last 4,096 others", "proxy/decisions", "numShards*refusedRecent == 6144 && numShards*allowedRecent == 4096"},
		{"proxy/docs/commands.md", "keeps the first 1,000 refusals", "proxy/decisions", "refusedEverySecond == 1000"},
		{"proxy/docs/commands.md", "up to 1,536, of which no key", "proxy/decisions", "numShards*earlierRecent == 1536"},
		{"proxy/docs/commands.md", "Of each limit 512 keys are counted", "proxy/decisions", "maxCounted == 512"},
		{"proxy/docs/commands.md", "A reply is at most 1 MiB", "proxy/cluster", "maxReplyBytes == 1<<20"},
		{"proxy/docs/commands.md", "for 30 days and up to 20,000 entries", "proxy/cluster", "AuditRetention == 30*24*3600e9 && MaxAuditEntries == 20000"},
		{"proxy/docs/commands.md", "lists the last 20 pushes", "proxy/cluster", "historyLength == 20"},
		{"proxy/docs/cluster.md", "next push can begin after two seconds", "proxy/cluster", "pushTTL == 2e9"},
		{"proxy/docs/cluster.md", "another node becomes leader within 10 s", "proxy/cluster", "DefaultLease == 10e9"},
		{"proxy/docs/commands.md", "for up to 2,000 counts found among up to 100,000 keys", "proxy/cluster", "maxCounted == 2000 && maxScanned == 100000"},
		{"proxy/docs/commands.md", "There can be 1,000 bans of networks", "proxy/directive", "Max == 1000"},
		{"proxy/docs/commands.md", "waits for it longer than 0.15 s", "proxy/node", "operatorTimeout == 150e6"},
		{"proxy/docs/cluster.md", "it checks every 30 s", "proxy/node", "rescanInterval == 30e9"},
		{"proxy/docs/api.md", "3 minutes, 256 MiB", "proxy/node", "simulateWithin == 180e9 && simulateMemory == 256<<20"},
		{"proxy/docs/api.md", "it pauses after every 2 ms", "proxy/node", "workPeriod == 2e6"},
		{"proxy/docs/api.md", "256 MiB uncompressed", "proxy/node", "simulateLogs == 256<<20"},
		{"proxy/docs/api.md", "32 MiB, 256 MiB uncompressed", "proxy/admin", "MaxLog == 32<<20"},
		{"proxy/docs/api.md", "up to 64 subscribers", "proxy/admin", "maxSubscribers == 64"},
		{"proxy/docs/admin.md", "five wrong tokens at once, and then one every two seconds", "proxy/admin", "wrongAtOnce == 5 && wrongInterval == 2e9"},
		{"proxy/docs/api.md", "up to 1440)", "proxy/admin", "maxMinutes == 1440"},
		{"proxy/docs/admin.md", "lasts 12 hours", "proxy/admin/dashboard", "sessionTTL == 12*3600e9"},
		{"proxy/docs/simulate.md", "Lines may be a minute, or 65536 lines, behind", "proxy/simulate", "maxDelay == 60e9 && maxPending == 65536"},
		{"proxy/docs/cluster.md", "up to 8 MiB in total", "proxy/config/internal/form", "MaxSize == 8<<20"},
		{"proxy/docs/log.md", "up to 4096 spans", "proxy/trace", "maxQueued == 4096"},
		{"proxy/docs/log.md", "A batch is given up after five attempts. On shutdown Weir waits up to two seconds", "proxy/trace", "maxAttempts == 5 && flushTimeout == 2e9"},
		{"proxy/docs/metrics.md", "at most one every 10 s for each bucket", "proxy/metrics", "exemplarInterval == 10e9"},
		{"proxy/docs/metrics.md", "of the 20 countries with most requests", "proxy", "countriesShown == 20"},
		{"proxy/docs/log.md", "from ten refusals on", "proxy/config", "leastShare == 10"},
		{"proxy/docs/lists.md", "A file may have 128 MiB", "proxy/config", "maxList == 128<<20"},
		{"proxy/docs/lists.md", "have 63 bytes at most", "proxy/key", "MaxPrefix == 63"},
		{"proxy/docs/keys.md", "or beyond 2^53", "proxy/key", "maxExact == 1<<53-1"},
		{"proxy/docs/budgets.md", "at most 255 bytes", "proxy/key", "maxTokenID == 255"},
		{"proxy/docs/fields.md", "at least 32 bytes", "proxy/key", "minSecret == 32"},
		{"proxy/docs/fields.md", "the token, 16 characters or more", "proxy/config", "leastToken == 16"},
		{"proxy/docs/fields-limits.md", "5m when not given, and at most 1d", "proxy/config", "tokenAge == 300e9 && longestToken == 24*3600e9"},
		{"proxy/docs/fields-routes.md", "from a tenth to the full share", "proxy/upstream", "slowStartShare == 0.1"},
		{"proxy/docs/upstreams.md", "At most a fifth of all requests is retried", "proxy/upstream", "retryRatio == 0.2"},
		{"proxy/docs/fields.md", "must also average 500 bytes a second", "proxy/body", "minBodyRate == 500"},
		{"proxy/docs/fields.md", "must also average 500 bytes a second", "proxy/http1", "minBodyRate == 500"},
		{"proxy/docs/listeners.md", "has 30 seconds to finish sending", "proxy/http1", "lingerTimeout == 30e9"},
		{"proxy/docs/limits.md", "A node holds 50,000 permits", "proxy/limit", "maxHeldLeases == 50000"},
		{"proxy/docs/limits.md", "its lease of 30 s", "proxy/config", "Lease == 30e9"},
		{"proxy/docs/decisions.md", "a body up to 2 KiB", "proxy/decide", "maxBodyField == 2<<10"},
		{"proxy/docs/envoy.md", "more than 128 rates together", "limiter", "MaxClaims == 128"},
		{"proxy/docs/conversion.md", "notes at least the last 64 permits of a limit", "limiter", "maxNoted == 64"},
		{"proxy/docs/conversion.md", "buckets of 1/60 of the window", "limiter", "conversionBuckets == 60"},
		{"proxy/docs/fields.md", "counts up to 1,000,000 keys separately", "limiter", "defaultKeys == 1000000"},
		{"proxy/docs/limits.md", "up to 128 entries; merged beyond that", "limiter", "fullLog == 128"},
		{"limiter/README.md", "into 64 parts of the window", "limiter", "mergeSlots == 64"},
		{"limiter/README.md", "up to 32 entries", "limiter", "maxCooldownEntries == 32"},
		{"proxy/docs/failure.md", "4 batches of up to 128 claims", "limiter/redisstore", "maxClaims == 128"},
		{"lock/README.md", "not between 20 ms and 366 days", "lock", "MinLease == 20e6 && MaxLease == 366*24*3600e9"},
		{"lock/README.md", "every third of its lease (30 s)", "lock", "DefaultLease == 30e9"},
	} {
		if !strings.Contains(strings.Join(strings.Fields(doc(t, row.page).text), " "), row.text) {
			t.Errorf("%s no longer says %q", row.page, row.text)
		}
		if scopes[row.dir] == nil {
			scopes[row.dir] = constantsOf(t, row.dir)
		}
		got, err := types.Eval(token.NewFileSet(), scopes[row.dir], token.NoPos, row.holds)
		if err != nil || got.Value == nil || got.Value.String() != "true" {
			t.Errorf("%s says %q, which is not so in %s: %s (%v)", row.page, row.text, row.dir, row.holds, err)
		}
	}
}

// constantsOf is a package as far as it can be checked without those that it imports, but for time: what its
// constants are.
func constantsOf(t *testing.T, dir string) *types.Package {
	t.Helper()
	var files []*ast.File
	for _, s := range sources(t) {
		if s.dir == dir && !s.isTest() {
			files = append(files, s.file)
		}
	}
	check := types.Config{Importer: timeAlone{}, Error: func(error) {}, IgnoreFuncBodies: true}
	p, _ := check.Check(dir, sources(t)[0].files, files, nil) // what needs another package is no constant
	return p
}

// timeAlone imports no package but time.
type timeAlone struct{}

func (timeAlone) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, fs.ErrNotExist
	}
	return importer.Default().Import(path)
}

// Every command of Weir in a block of shell does what it says, in the order of its page, beside a node that serves
// what is pushed, and files of the names that it is given.
func TestDocuments_CommandsRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := redisYAML(redistest.Start(t).Addr) + weirtest.Listeners + `
reload: {source: redis}
keys: {phone: {from: "header:X-Phone", normalize: {as: e164, default_region: CN}}, ip: client_ip}
routes:
  - name: sms-send
    match: {methods: [POST], path: /v1/sms/send}
    upstream: echo
    limits: [{key: phone, rate: 1/1m}, {key: ip, rate: 5/1m}]
`
	write(t, filepath.Join(dir, "weir.yaml"), file)
	write(t, filepath.Join(dir, "stricter.yaml"), strings.Replace(file, "5/1m", "2/1m", 1))
	line := `{"time":"2026-11-26T10:00:00Z","request_method":"POST","request_uri":"/v1/sms/send","http_x_phone":"+8613800138000","remote_addr":"192.0.2.1","status":200}` + "\n"
	var packed strings.Builder
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(line)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	nginx := "http { limit_req_zone $binary_remote_addr zone=a:1m rate=5r/s; server { listen 80; location / { limit_req zone=a; proxy_pass http://127.0.0.1:9000; } } }\n"
	for name, text := range map[string]string{"nginx.txt": nginx, "access.log": line, "access.log.1": line, "access.log.2.gz": packed.String(), "old/1.gz": packed.String()} {
		write(t, filepath.Join(dir, name), text)
	}
	w := startWith(t, dir, "-c", "weir.yaml")
	runLine(t, dir, w.Admin, "weir push stricter.yaml") // what a rollback leads to
	ran := 0
	for _, d := range docs(t) {
		for _, line := range d.commands("weir") {
			if d.path != "proxy/docs/tasks.md" { // whose commands need the configuration of their task
				runLine(t, dir, w.Admin, strings.Replace(line, "rollback 41", "rollback 3", 1))
				ran++
			}
		}
	}
	if ran < 15 {
		t.Errorf("%d commands were run", ran)
	}
}

// runLine runs a line of a document as a shell does; it must succeed, and say something.
func runLine(t *testing.T, dir, admin, line string) {
	t.Helper()
	cmd := inDir(exec.CommandContext(t.Context(), "sh", "-c", line), dir)
	cmd.Env = append(os.Environ(), "WEIR_ADMIN="+admin)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) == 0 {
		t.Errorf("%s%v\n%s", line, err, said)
	}
}
