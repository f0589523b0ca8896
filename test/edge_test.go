package test

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/logtest"
)

// A client that follows the redirect from http to https arrives, at the port that the system chose.
func TestEdge_HTTPBecomesHTTPS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	write(t, filepath.Join(dir, "weir.yaml"), `listen: {http: "127.0.0.1:0", https: "127.0.0.1:0", redirect_https: true, tls: {cert: cert.pem, key: key.pem}}
admin: {http: "127.0.0.1:0"}
routes: [{name: all, match: {path: /*}, upstream: echo}]
`)
	w := startWith(t, dir)
	secure := w.WaitForLog("serving", func(logtest.Line) bool { return true }).Text("https")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Post(w.URL+"/a%2Cb?x=1", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if at := answer.Request.URL; answer.StatusCode != http.StatusOK || answer.Request.Method != "POST" || at.String() != "https://"+secure+"/a%2Cb?x=1" {
		t.Errorf("%s %s is answered with %d; want 200 for a POST at %s", answer.Request.Method, at, answer.StatusCode, secure)
	}
}
