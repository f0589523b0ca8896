package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

// A running is a running weir, by its admin listener.
type running struct {
	Admin string `default:"127.0.0.1:9901" env:"WEIR_ADMIN" help:"Where the admin listener of a running weir is: HOST:PORT or a URL." placeholder:"HOST:PORT"`
	Token string `env:"WEIR_ADMIN_TOKEN" help:"Its token, if it asks for one."`
}

func (r running) client() admin.Client { return admin.Client{Address: r.Admin, Token: r.Token} }

// explained is err, or errReported when it is a refusal whose facts it prints to out:
// every problem of a configuration, or what each node said.
func explained(out io.Writer, err error) error {
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

// pack reads a file to be sent; its problems are printed to out, one a line.
func pack(path string, out io.Writer) (config.Bundle, error) {
	b, err := config.Pack(path)
	return b, printed(out, err)
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
