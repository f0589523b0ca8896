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
	"github.com/weir-proxy/weir/proxy/config"
)

// An adminFlags is a running weir, by its admin listener.
type adminFlags struct {
	tlsFlags
	Admin string `default:"127.0.0.1:9901" env:"WEIR_ADMIN" help:"Where the admin listener of a running weir is: HOST:PORT or a URL." placeholder:"HOST:PORT"`
	Token string `env:"WEIR_ADMIN_TOKEN" help:"Its token, if it asks for one."`
}

func (r adminFlags) client() admin.Client {
	return admin.Client{Address: r.Admin, Token: r.Token, HTTP: r.httpClient()}
}

// A tlsFlags is what is shown to an admin listener in TLS, and whom to believe there.
type tlsFlags struct {
	CACert string `name:"cacert" env:"WEIR_ADMIN_CACERT" help:"A file with authorities that sign its certificate, in PEM; without it those of this machine." placeholder:"FILE"`
	Cert   string `name:"cert" env:"WEIR_ADMIN_CERT" help:"A file with the certificate to show it, in PEM, where it has a client_ca." placeholder:"FILE"`
	Key    string `name:"key" env:"WEIR_ADMIN_KEY" help:"A file with the key of that certificate." placeholder:"FILE"`
}

// Validate says what is wrong with the files before anything is done.
func (i tlsFlags) Validate() error {
	_, err := i.config()
	return err
}

// httpClient is a client with that identity; nil for none in particular.
func (i tlsFlags) httpClient() *http.Client {
	if i == (tlsFlags{}) {
		return nil
	}
	carrier := http.DefaultTransport.(*http.Transport).Clone()
	made, err := i.config()
	carrier.TLSClientConfig = made
	carrier.Protocols = new(http.Protocols)
	carrier.Protocols.SetHTTP1(true) // over HTTP/2, why a certificate was refused is not always told
	if err != nil {                  // since it was validated
		carrier.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, err }
	}
	return &http.Client{Transport: carrier}
}

// config is what that identity is in TLS.
func (i tlsFlags) config() (*tls.Config, error) {
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if i.CACert != "" {
		text, err := os.ReadFile(i.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		if made.RootCAs = x509.NewCertPool(); !made.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert %s: there is no certificate in this file; name one with -----BEGIN CERTIFICATE-----", i.CACert)
		}
	}
	switch {
	case i.Cert == "" && i.Key != "":
		return nil, errors.New("--key without --cert: write both, they belong together")
	case i.Cert != "":
		pair, err := tls.LoadX509KeyPair(i.Cert, cmp.Or(i.Key, i.Cert)) // a file may hold both
		if err != nil {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made, nil
}

// reportRefusal is err, or errReported when it is a refusal whose facts it prints to out:
// every problem of a configuration, or what each node said.
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

// packBundle reads a file to be sent; its problems are printed to out, one a line.
func packBundle(path string, out io.Writer) (config.Bundle, error) {
	b, err := config.Pack(path)
	return b, reportProblems(out, err)
}

// author is who somebody is that says no other name: the user and the machine.
func author(named string) string {
	if named != "" {
		return named
	}
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
