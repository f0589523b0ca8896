// Package golden records what Weir answers, logs, decides and explains for configurations and requests that are made at random
// from a seed, so that whoever changes how it works sees whether anything else changes.
package golden

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A Stand is what a record is made with.
type Stand struct {
	Store   limiter.AdminStore
	Advance func(d time.Duration) // of the clock of the store
	Settle  func()                // waits until nothing happens any more
	Keys    func() []string       // what lies in the store; nil for nothing that can be seen
	Fail    func()                // has the store fail, until
	Heal    func()                // this; nil for one that does not fail
}

// requests is how many requests a record has.
const requests = 30

// Record is what becomes of the configuration in that file, changed as the seed says, and of some requests.
func Record(tb testing.TB, file string, seed uint64, s Stand) string {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(len(file))))
	text := changed(tb, r, file)
	log := new(output)
	// The file lies beside the lists and parts that it names.
	path := filepath.Join(filepath.Dir(file), fmt.Sprintf("changed-%d-%s", seed, filepath.Base(file)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	defer os.Remove(path)
	c, err := config.Load(path)
	if err != nil {
		return clean(string(text)+"\n"+strings.ReplaceAll(err.Error(), path, "weir.yaml"), path)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.Redis.Timeout = time.Minute // nothing here is too late on a busy machine
	p, err := proxy.New(ctx, proxy.Options{
		Config: c, Store: s.Store, Registry: prometheus.NewRegistry(), Log: zerolog.New(log), LogSalt: func() proxy.Salt { return proxy.Salt{1} },
	})
	if err != nil {
		return clean(string(text)+"\n"+err.Error(), path)
	}
	defer p.Close()
	var out strings.Builder
	out.Write(text)
	asker := newAsker(r, c, string(text))
	for i := range requests {
		switch {
		case s.Fail == nil:
		case i == requests/2:
			s.Fail()
		case i == requests*3/4:
			s.Heal()
		}
		asked := asker.next()
		fmt.Fprintf(&out, "\n--- %d: %s %s %v %q\n", i, asked.Method, asked.URL, asked.Header, asked.Body)
		if i%5 == 4 {
			if e, err := p.Explain(ctx, asked); err != nil {
				fmt.Fprintln(&out, "explained:", err)
			} else {
				fmt.Fprintln(&out, "explained:", marshal(tb, e))
			}
		}
		response := weirtest.Exchange(p, sent(asked))
		s.Settle()
		fmt.Fprintln(&out, response.Code, fields(response), response.Body)
		for _, d := range p.Decisions(view.DecisionQuery{RequestID: response.Header().Get("X-Request-Id")}) {
			if d.Outcome != "allowed" { // of which only some are recorded
				fmt.Fprintln(&out, "decided:", marshal(tb, d))
			}
		}
		fmt.Fprint(&out, log.take())
		s.Advance(time.Duration(r.IntN(4)) * time.Duration(r.IntN(20)) * time.Second)
	}
	if s.Keys != nil {
		fmt.Fprintln(&out, strings.Join(s.Keys(), "\n"))
	}
	return clean(out.String(), path)
}

func marshal(tb testing.TB, v any) string {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// sent is the request as a client sends it.
func sent(asked view.ExplainRequest) *http.Request {
	r := httptest.NewRequest(asked.Method, asked.URL, strings.NewReader(asked.Body))
	r.Header = http.Header(asked.Header).Clone()
	r.RemoteAddr = netip.AddrPortFrom(asked.Client, 4000).String()
	return r
}

// fields are those of a response, in order.
func fields(response *httptest.ResponseRecorder) string {
	var lines []string
	for name, values := range response.Header() {
		lines = append(lines, name+": "+strings.Join(values, " | "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// own is what differs from run to run: identifiers, durations, and what is added to Retry-After at random.
var own = regexp.MustCompile(`Date: .* GMT|Retry-After(: |":\[")[0-9]+|gain in [0-9]+ s|"retry_after[a-z_]*":"?[0-9]+|[0-9A-Z]{26}|weir-[0-9A-Z]{8}|[0-9a-f]{32}-[0-9a-f]{16}|"(duration|took|upstream|own)_ms":[0-9.]+`)

func clean(text, path string) string {
	return own.ReplaceAllString(strings.ReplaceAll(text, path, "weir.yaml"), "~")
}

// An output is a log.
type output struct {
	mu sync.Mutex // guards what follows
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// take returns what was written since the last call.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.b.Reset()
	return o.b.String()
}

const (
	// Seeds is how many records of each file have a hash; ./test/run makes some of them.
	Seeds = 33
	some  = 1
)

// folder is where the configurations are that records begin with, from a package two folders deep.
const folder = "../../proxy/config/testdata/"

// Real is the seeds of records that are made in real time: few, and of no configuration that has requests wait.
const Real = 2

// Compare makes so many records of each good configuration and compares their hashes with those of testdata/NAME.txt. To see what has
// changed, run it with WEIR_GOLDEN_TEXTS=FOLDER before and after the change, and compare the two folders; WEIR_GOLDEN=write
// writes the hashes.
func Compare(t *testing.T, name string, most int, record func(t *testing.T, file string, seed uint64) string) {
	files, err := filepath.Glob(folder + "good-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations in %s: %v", folder, err)
	}
	for name, value := range map[string]string{"SET": "set", "NUMBER": "7", "EMPTY": ""} { // what configurations refer to
		t.Setenv(name, value)
	}
	path := filepath.Join("../../test/golden/testdata", name+".txt")
	hashes := read(t, path)
	written, count := hashes, min(rounds.Of(some), most)
	if os.Getenv("WEIR_GOLDEN") == "write" {
		written, count = map[string]string{}, most
	}
	for _, file := range files {
		if most == Real && strings.HasSuffix(file, "wait.yaml") || strings.HasSuffix(file, "waits.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			for seed := range uint64(count) {
				one := fmt.Sprint(filepath.Base(file), " ", seed)
				text := record(t, file, seed)
				if to := os.Getenv("WEIR_GOLDEN_TEXTS"); to != "" {
					_ = os.MkdirAll(to, 0o700) // or writing fails
					if err := os.WriteFile(filepath.Join(to, strings.ReplaceAll(one, " ", ".")), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
				if len(written) == 0 || os.Getenv("WEIR_GOLDEN") == "write" {
					written[one] = hash
				} else if hashes[one] != hash {
					t.Errorf("%s: something else happens than before; WEIR_GOLDEN_TEXTS shows it", one)
				}
			}
		})
	}
	if os.Getenv("WEIR_GOLDEN") == "write" {
		write(t, path, written)
	}
}

// read reads the hashes of a file, one a line behind the name of its record.
func read(t *testing.T, path string) map[string]string {
	t.Helper()
	hashes := map[string]string{}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			hashes[lines.Text()[:i]] = lines.Text()[i+1:]
		}
	}
	return hashes
}

func write(t *testing.T, path string, hashes map[string]string) {
	t.Helper()
	var lines []string
	for one, hash := range hashes {
		lines = append(lines, one+" "+hash+"\n")
	}
	slices.Sort(lines)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
