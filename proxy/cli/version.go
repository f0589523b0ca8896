package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/weir-proxy/weir/proxy/node"
)

type versionCommand struct{}

// Run prints the version and the build information.
func (versionCommand) Run(w Env) error {
	return printBuild(w.Stdout, readBuild())
}

// A versionFlag is the flag --version, which does the same as the command.
type versionFlag bool

// BeforeReset implements kong's hook: the version is printed, and nothing else done.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	err := printBuild(app.Stdout, readBuild())
	app.Exit(exitOK)
	return err
}

// The version and revision set by the linker, for builds outside a repository:
// -X github.com/weir-proxy/weir/proxy/cli.version=v1.2.3. They may be empty.
var version, revision string

func printBuild(out io.Writer, b node.Build) error {
	_, err := fmt.Fprintf(out, "weir %s (commit %s, %s)\n", b.Version, b.Commit, b.Go)
	return err
}

// readBuild returns the build information of the binary.
func readBuild() node.Build {
	b := node.Build{Version: "(devel)", Commit: "unknown", Go: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	b.Version, b.Commit = cmp.Or(version, b.Version), cmp.Or(revision, b.Commit)
	return b
}
