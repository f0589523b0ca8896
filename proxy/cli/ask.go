package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

// adminFlags are the flags that select the admin listener of a running process.
type adminFlags struct {
	Admin string `default:"127.0.0.1:9901" env:"WEIR_ADMIN" help:"Address of the admin listener of a running weir: HOST:PORT or a URL." placeholder:"HOST:PORT"`
	Token string `env:"WEIR_ADMIN_TOKEN" help:"Bearer token for the admin listener."`
	tlsFlags
}

func (a adminFlags) client() admin.Client {
	return admin.Client{Address: cmp.Or(a.Admin, defaultAdmin), Token: a.Token, HTTP: a.httpClient()}
}

// answerFlags are the flags of a command that prints what a running weir answers. They stand after its own in the help.
type answerFlags struct {
	JSON bool `name:"json" help:"Print JSON."`
	adminFlags
}

// tlsFlags are the flags for an admin listener with TLS.
type tlsFlags struct {
	CACert string `name:"cacert" env:"WEIR_ADMIN_CACERT" help:"PEM file with the authorities that sign its certificate; default: those of the system." placeholder:"FILE"`
	Cert   string `name:"cert" env:"WEIR_ADMIN_CERT" help:"PEM file with a client certificate, required if it has a client_ca." placeholder:"FILE"`
	Key    string `name:"key" env:"WEIR_ADMIN_KEY" help:"PEM file with the private key of that certificate." placeholder:"FILE"`
}

// Validate implements kong's hook: it checks the files.
func (t tlsFlags) Validate() error {
	_, err := t.config()
	return err
}

// httpClient returns a client with these certificates; nil if no flag is set.
func (t tlsFlags) httpClient() *http.Client {
	if t == (tlsFlags{}) {
		return nil
	}
	carrier := http.DefaultTransport.(*http.Transport).Clone()
	made, err := t.config()
	carrier.TLSClientConfig = made
	carrier.Protocols = new(http.Protocols)
	carrier.Protocols.SetHTTP1(true) // over HTTP/2 the reason for a refused certificate may be lost
	if err != nil {                  // changed since Validate
		carrier.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, err }
	}
	return &http.Client{Transport: carrier}
}

// config returns the TLS configuration of the flags.
func (t tlsFlags) config() (*tls.Config, error) {
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CACert != "" {
		text, err := os.ReadFile(t.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		if made.RootCAs = x509.NewCertPool(); !made.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert %s: there is no certificate in this file; name one with -----BEGIN CERTIFICATE-----", t.CACert)
		}
	}
	switch {
	case t.Cert == "" && t.Key != "":
		return nil, errors.New("--key without --cert: write both, they belong together")
	case t.Cert != "":
		pair, err := tls.LoadX509KeyPair(t.Cert, cmp.Or(t.Key, t.Cert)) // one file may hold both
		if err != nil {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made, nil
}

// reportRefusal prints the details of a refusal to out (every problem of a configuration,
// or the answer of each node) and returns errReported; other errors it returns unchanged.
func reportRefusal(out io.Writer, err error) error {
	var why *admin.Problem
	if !errors.As(err, &why) {
		return err
	}
	for _, p := range why.Problems {
		fmt.Fprintln(out, p)
	}
	for _, n := range why.Nodes {
		fmt.Fprintf(out, "%s: %s\n", n.Node, cmp.Or(n.Said, "no answer"))
	}
	if len(why.Problems) > 0 {
		return errReported
	}
	if len(why.Nodes) > 0 {
		return errors.New("not all nodes agree; nothing has changed")
	}
	return err
}

// printUnanswered prints which nodes did not answer a question or could not do what was asked, and returns how many.
func printUnanswered(out io.Writer, nodes []view.NodeAnswer) (failed int) {
	for _, n := range nodes {
		if n.Said != "ok" {
			failed++
			fmt.Fprintf(out, "%s: %s\n", n.Node, cmp.Or(n.Said, "no answer"))
		}
	}
	return failed
}

// packBundle reads a file and the files it names; problems are printed to out, one
// per line.
func packBundle(path string, out io.Writer) (bundle.Bundle, error) {
	b, err := bundle.Pack(path)
	return b, reportProblems(out, err)
}

// sender returns the user and the host name.
func sender() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
