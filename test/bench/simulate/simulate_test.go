// Package simulate measures what weir simulate takes of a million lines on one processor:
//
//	go test -run '^$' -bench . -benchtime 1x ./test/bench/simulate
//
// Each benchmark builds weir and runs it as a process of its own. Lines come over its
// standard input, as fast as it reads them; what counts is the time that it computes,
// cpu-s, and the most memory that it had, peak-MB. WEIR_BENCH_WEIR names another binary to
// be measured, one from before a change for example.
package simulate

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// lines are how many are simulated.
const lines = 1_000_000

// A load is a configuration, and a log for it.
type load struct {
	name   string
	limits string
	line   func(w io.Writer, n int, at time.Time, random *rand.Rand)
}

const (
	oneWindow   = "[{name: ip, key: client_ip, rate: 60/1m}]"
	usual       = "[{name: phone, key: phone, rates: [1/1m, 5/1h, 10/1d]}, {name: ip, key: client_ip, rates: [60/1m, 600/1h]}]"
	fiveWindows = "[{name: phone, key: phone, rates: [1/1m, 5/1h, 10/1d, 30/7d, 60/30d]}]"
)

// loads go from what is usual to the most that a store counts. The lines are those of a
// day.
func loads() []load {
	return []load{
		{"combined", oneWindow, combined},
		{"phones", usual, phones(200_000)},
		{"phones five windows", fiveWindows, phones(200_000)},
		{"all keys distinct", fiveWindows, phones(lines)},
	}
}

// combined writes a line of an nginx before some thousand clients.
func combined(w io.Writer, n int, at time.Time, random *rand.Rand) {
	fmt.Fprintf(w, "203.0.%d.%d - - [%s] \"POST /sms/%d HTTP/1.1\" 200 512 \"-\" \"curl/8.5.0\"\n",
		random.IntN(32), random.IntN(256), at.Format("02/Jan/2006:15:04:05 -0700"), n%100)
}

// phones writes lines of so many phones, each at random; of as many as there are lines,
// each once.
func phones(distinct int) func(w io.Writer, n int, at time.Time, random *rand.Rand) {
	return func(w io.Writer, n int, at time.Time, random *rand.Rand) {
		phone := n
		if distinct < lines {
			phone = random.IntN(distinct)
		}
		fmt.Fprintf(w, `{"time":"%s","message":"request","request_id":"r%d","method":"POST","host":"api.example.com","uri":"/sms/1",`+
			`"status":200,"duration":0.012,"client_ip":"203.0.%d.%d","phone":"+86138%08d"}`+"\n",
			at.Format("2006-01-02T15:04:05.000Z07:00"), n, random.IntN(200), random.IntN(250), phone*7%100_000_000)
	}
}

// write writes the lines of a day.
func (l load) write(to io.Writer) error {
	random := rand.New(rand.NewPCG(1, 2))
	w := bufio.NewWriterSize(to, 1<<16)
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for n := range lines {
		at = at.Add(time.Duration(random.Int64N(int64(2 * 24 * time.Hour / lines))))
		l.line(w, n, at, random)
	}
	return w.Flush()
}

func BenchmarkSimulate(b *testing.B) {
	weir := os.Getenv("WEIR_BENCH_WEIR")
	if weir == "" {
		weir = filepath.Join(b.TempDir(), "weir")
		if out, err := exec.Command("go", "build", "-o", weir, "github.com/weir-proxy/weir").CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
	for _, l := range loads() {
		b.Run(l.name, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "weir.yaml")
			yaml := `
upstreams: {sms: {targets: ["http://127.0.0.1:1"]}}
keys: {phone: {from: json:/phone, normalize: {as: e164, default_region: CN}}}
routes: [{name: sms, match: {methods: [POST], path: "/sms/{n}"}, upstream: sms, limits: ` + l.limits + "}]\n"
			if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				l.measure(b, exec.Command(weir, "simulate", "-c", file, "--field", "json:/phone=phone", "-"))
			}
		})
	}
}

// measure runs weir on the lines and reports what it took.
func (l load) measure(b *testing.B, weir *exec.Cmd) {
	weir.Env = append(os.Environ(), "GOMAXPROCS=1")
	in, err := weir.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		err := l.write(in)
		in.Close()
		wrote <- err
	}()
	out, err := weir.CombinedOutput()
	if err := <-wrote; err != nil {
		b.Errorf("write lines: %v", err)
	}
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	took := weir.ProcessState
	b.ReportMetric((took.UserTime() + took.SystemTime()).Seconds(), "cpu-s")
	if used, ok := took.SysUsage().(*syscall.Rusage); ok {
		b.ReportMetric(float64(used.Maxrss)/1024, "peak-MB") // Linux counts in KB
	}
}
