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

// Run prints which weir this is and what it was built with.
func (versionCommand) Run(w Env) error {
	return printBuild(w.Stdout, readBuild())
}

// A versionFlag is --version: as the command, for those who know it as a flag.
type versionFlag bool

// BeforeReset implements kong's hook: the version is printed, and nothing else done.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	err := printBuild(app.Stdout, readBuild())
	app.Exit(exitOK)
	return err
}

// What the linker was told of the build, for one without a repository beside it:
// -X github.com/weir-proxy/weir/proxy/cli.version=v1.2.3. Empty if nothing.
var version, revision string

func printBuild(out io.Writer, b node.Build) error {
	_, err := fmt.Fprintf(out, "weir %s (commit %s, %s)\n", b.Version, b.Commit, b.Go)
	return err
}

// readBuild is what the binary knows of its own making.
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
