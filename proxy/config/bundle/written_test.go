package bundle

import (
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

// What variables hold on a machine is not told to whoever asks what would change
// there, in whatever field they are named.
func TestCompare_ShowsVariablesAsTheyAreWritten(t *testing.T) {
	t.Setenv("WEIR_TEST_HELD", "/hunter2")
	t.Setenv("WEIR_TEST_NUMBER", "4711")
	const named = `alerts: {webhook: "https://a.example${WEIR_TEST_HELD}", repeat: 3h}
client_ip: {trusted_proxies: "10.0.0.0/8", header: X-Real}
keys: {k: "header:X-${WEIR_TEST_NUMBER}"}
upstreams: {u: {targets: ["http://10.0.0.1${WEIR_TEST_HELD}"], timeouts: {response: "${WEIR_TEST_NUMBER}s"}}}
routes:
  - name: r
    match: {path: "/p${WEIR_TEST_HELD}", headers: {X-A: "${WEIR_TEST_HELD}"}}
    respond: {body: "x ${WEIR_TEST_HELD}", status: 200}
    limits: [{name: l, key: k, rate: "${WEIR_TEST_NUMBER}/1m"}]
`
	text := strings.Replace(named, "http://10.0.0.1${WEIR_TEST_HELD}", "http://10.0.0.1:${WEIR_TEST_NUMBER}", 1)
	at := ownConfig(t, small)
	is, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}})
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, c := range config.Compare(at, is) {
		told.WriteString(c.String() + "\n")
	}
	for _, held := range []string{"hunter2", "4711"} {
		if strings.Contains(told.String(), held) {
			t.Errorf("told %s:\n%s", held, told.String())
		}
	}
	for _, want := range []string{`"x ${WEIR_TEST_HELD}"`, `"${WEIR_TEST_NUMBER}/1m"`, `"${WEIR_TEST_NUMBER}s"`, `"/p${WEIR_TEST_HELD}"`, `"header:X-${WEIR_TEST_NUMBER}"`, `:${WEIR_TEST_NUMBER}"`} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("not told %s:\n%s", want, told.String())
		}
	}
}

func TestUnpack_ProblemsNameVariablesAndNotWhatTheyHold(t *testing.T) {
	t.Setenv("WEIR_TEST_HELD", "hunter2hunter2")
	at := ownConfig(t, small)
	for _, text := range []string{
		"store: \"${WEIR_TEST_HELD}\"\n" + small,
		"defaults: {new_keys: \"${WEIR_TEST_HELD}\"}\n" + small,
		"client_ip: {trusted_proxies: [\"${WEIR_TEST_HELD}\"]}\n" + small,
		"routes: [{match: {path: /a}, upstream: \"${WEIR_TEST_HELD}\"}]\n",
		"listen: {max_header: \"${WEIR_TEST_HELD}\"}\n" + small,
	} {
		_, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}})
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "${WEIR_TEST_HELD}") {
			t.Errorf("%s: %v; want the name of the variable alone", text, err)
		}
	}
}
