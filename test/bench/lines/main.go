// Lines counts how often a request of weir writes a cache line that another processor wrote last, by
// function: what limits a proxy on many processors, counted on a machine with few.
//
//	go run ./test/bench/lines [-processors 4] [-weir ./weir] [plain memory refused]
//
// It needs gcc, wrk, and qemu-x86_64 of QEMU 6 or 7 (Debian: qemu-user), which runs weir with the plugin in plugin/lines.c.
package main

import (
	"cmp"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	module = "github.com/weir-proxy/weir/"
	// connections are so many that what belongs to one of them is written by few requests.
	connections = 256
	// A line is shared if at least one in sharedBy requests takes it from another processor.
	sharedBy = 50
	skipped  = 100_000 // requests until counters are busy, and have stripes
	counted  = 20_000
	keys     = 10_000
)

func main() {
	processors := flag.Int("processors", 4, "processors of weir (GOMAXPROCS)")
	weir := flag.String("weir", "./weir", "binary")
	flag.Parse()
	workloads := flag.Args()
	if len(workloads) == 0 {
		workloads = []string{"plain", "memory", "refused"}
	}
	dir, err := os.MkdirTemp("", "lines")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, w := range workloads {
		if err := measure(*weir, w, dir, *processors); err != nil {
			log.Fatalf("%s: %v", w, err)
		}
	}
}

// measure runs one workload and prints its table.
func measure(weir, workload, dir string, processors int) error {
	request, take, err := addresses(weir)
	if err != nil {
		return err
	}
	plugin, out := filepath.Join(dir, "lines.so"), filepath.Join(dir, workload+".out")
	if text, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", plugin, "test/bench/lines/plugin/lines.c").CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w: %s", err, text)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1024)) }))
	defer upstream.Close()
	address, err := freeAddress()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, workload+".yaml")
	if err := os.WriteFile(file, []byte(configuration(workload, address, upstream.URL)), 0o600); err != nil {
		return err
	}
	options := fmt.Sprintf("%s,at=%x,wire=%x,skip=%d,count=%d,to=%s", plugin, request, take, skipped, counted, out)
	c := exec.Command("qemu-x86_64", "-plugin", options, weir, "run", "-c", file, "--log-level", "error") // #nosec G204 -- a tool
	c.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", processors), "GODEBUG=asyncpreemptoff=1")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	if err := load(address, filepath.Join(dir, "keys.lua"), ended); err != nil {
		_ = c.Process.Kill()
		<-ended
		return err
	}
	return report(weir, workload, out)
}

// freeAddress returns an address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func configuration(workload, address, upstream string) string {
	limits := ""
	switch workload {
	case "memory":
		limits = ", limits: [{name: l, key: k, rate: 100000000/1m}]"
	case "refused":
		limits = ", limits: [{name: l, key: k, rate: 1/1h}]"
	}
	return fmt.Sprintf(`listen: {http: %q}
admin: {http: "127.0.0.1:0"}
upstreams: {app: {targets: [%q]}}
keys: {k: {from: "header:X-Api-Key"}}
routes:
  - {name: a, match: {path: "/*"}, upstream: app%s}
`, address, upstream, limits)
}

// addresses returns the address of the function that ends each request, and that of the instruction with which a thread
// takes a processor: it sets its status to 1, in runtime.wirep.
func addresses(weir string) (request, take uint64, err error) {
	f, err := elf.Open(weir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.Symbols()
	if err != nil {
		return 0, 0, fmt.Errorf("%w: build weir with its symbols", err)
	}
	for _, s := range symbols {
		if strings.HasSuffix(s.Name, "/proxy.(*Proxy).finish") {
			request = s.Value
		}
	}
	text, err := exec.Command("go", "tool", "objdump", "-s", `^runtime\.wirep$`, weir).Output() // #nosec G204 -- a tool
	if err != nil {
		return 0, 0, err
	}
	found := regexp.MustCompile(`0x([0-9a-f]+)\s+\S+\s+MOVL \$0x1, `).FindSubmatch(text)
	if found == nil || request == 0 {
		return 0, 0, errors.New("no finish or no wirep as expected")
	}
	_, err = fmt.Sscanf(string(found[1]), "%x", &take)
	return request, take, err
}

// load sends requests with many keys over all connections until weir has ended.
func load(address, script string, ended <-chan struct{}) error {
	text := fmt.Sprintf(`local n = 0
request = function() n = (n + 7919) %% %d; return wrk.format("GET", "/api", {["X-Api-Key"] = n}) end
`, keys)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return err
	}
	for {
		select {
		case <-ended:
			return nil
		case <-time.After(100 * time.Millisecond): // until it listens
		}
		c := exec.Command("wrk", "-t1", "-c", fmt.Sprint(connections), "-d5s", "-s", script, "http://"+address) // #nosec G204 -- a tool
		if err := c.Run(); errors.Is(err, exec.ErrNotFound) {
			return err
		}
	}
}

// A write is an instruction that took a line from another processor.
type write struct{ instruction, line uint64 }

// report prints what the plugin has written to a file, by function.
func report(weir, workload, out string) error {
	f, err := os.Open(out) // #nosec G304 -- it is our own
	if err != nil {
		return fmt.Errorf("weir has ended before it was counted: %w", err)
	}
	defer func() { _ = f.Close() }()
	writes, lines := map[write]float64{}, map[uint64]float64{}
	for {
		var w write
		var n float64
		if _, err := fmt.Fscanf(f, "%x %x %g\n", &w.instruction, &w.line, &n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		writes[w] += n / counted
		lines[w.line] += n / counted
	}
	names, err := functions(weir, writes)
	if err != nil {
		return err
	}
	by, own, all := map[string]float64{}, 0.0, 0.0
	for w, n := range writes {
		if lines[w.line] < 1.0/sharedBy {
			continue
		}
		name, isOwn := strings.CutPrefix(names[w.instruction], module)
		by[name] += n
		if all += n; isOwn {
			own += n
		}
	}
	fmt.Printf("%s: %.2f writes a request take a shared line from another processor, %.2f of them by weir and the rest by Go's runtime\n", workload, all, own)
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Compare(by[b], by[a]) }) {
		if by[name] >= 0.05 {
			fmt.Printf("%8.2f  %s\n", by[name], name)
		}
	}
	return nil
}

// functions returns the names of the functions of instructions.
func functions(weir string, writes map[write]float64) (map[uint64]string, error) {
	names := map[uint64]string{}
	for w := range writes {
		names[w.instruction] = ""
	}
	sorted := slices.Sorted(maps.Keys(names))
	var input strings.Builder
	for _, at := range sorted {
		fmt.Fprintf(&input, "0x%x\n", at)
	}
	c := exec.Command("go", "tool", "addr2line", weir) // #nosec G204 -- a tool
	c.Stdin = strings.NewReader(input.String())
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("addr2line: %w", err)
	}
	answer := strings.Split(string(text), "\n") // a function and its place for each
	for i, at := range sorted {
		names[at], _, _ = strings.Cut(answer[2*i], "[") // without the types of a generic function
	}
	return names, nil
}
