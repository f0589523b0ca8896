//go:build programs

package interop

import (
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/redistest"
)

// number is the number that pattern finds in text; 0 if it finds nothing.
func number(t *testing.T, text, pattern string) int {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// h2load's requests all succeed, by each of the protocols, many at a time on one
// connection.
func TestH2load_NoRequestFails(t *testing.T) {
	d := echoing(t)
	for how, args := range map[string][]string{
		"h2c": {"-m", "20", "http://" + d.plain}, "2 in TLS": {"-m", "20", "https://" + d.secure},
		"1.1": {"--h1", "http://" + d.plain}, "1.1 in TLS": {"--h1", "https://" + d.secure},
	} {
		text := mustRun(t, "h2load", append([]string{"-n", "3000", "-c", "10", "-t", "2"}, args...)...)
		if !strings.Contains(text, "3000 done, 3000 succeeded, 0 failed, 0 errored, 0 timeout") {
			t.Errorf("%s: %s", how, text)
		}
	}
}

// Nor do they with bodies, to an upstream that speaks HTTP/2 as well.
func TestH2load_UploadsToHTTP2(t *testing.T) {
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	startServer(t, exec.Command(program(t, "grpc-server"), "-port", port), addr)
	d := startProxy(t, "listen: {h2c: true}\nupstreams: {grpc: {targets: ['http://"+addr+"'], protocol: h2c}}\nroutes: [{match: {path: /*}, upstream: grpc}]\n")
	text := mustRun(t, "h2load", "-n", "2000", "-c", "5", "-m", "20", "-d", sparseFile(t, 5),
		"-H", "content-type: application/grpc", "-H", "te: trailers", "http://"+d.plain+"/grpc.testing.TestService/EmptyCall")
	if !strings.Contains(text, "2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout") {
		t.Error(text)
	}
}

// wrk's requests all succeed, unless a limit refuses them; and of those it lets
// through exactly as many as it says.
func TestWrk_NoRequestFails(t *testing.T) {
	_, nginx := startNginxBehind(t)
	d := startProxy(t, "routes: [{match: {path: /*}, upstream: 'http://"+nginx+"', limits: [{key: client_ip, rate: 100/1h}]}]\n")
	for addr, let := range map[string]int{nginx: 0, d.plain: 100} {
		text := mustRun(t, "wrk", "-t", "2", "-c", "20", "-d", "2s", "--timeout", "20s", "http://"+addr+"/plain/text.txt")
		all, other := number(t, text, `(\d+) requests in`), number(t, text, `Non-2xx or 3xx responses: (\d+)`)
		if strings.Contains(text, "Socket errors") || all < 100 {
			t.Errorf("%s", text)
		}
		if let == 0 && other > 0 || let > 0 && all-other != let {
			t.Errorf("%d of %d requests let through; want %d (0 for all)\n%s", all-other, all, let, text)
		}
	}
}
