package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

type versionCommand struct{}

// Run prints which weir this is and what it was built with.
func (versionCommand) Run(w Env) error {
	return readBuild().print(w.Stdout)
}

// A versionFlag is --version: as the command, for those who know it as a flag.
type versionFlag bool

// BeforeReset implements kong's hook: the version is printed, and nothing else done.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	err := readBuild().print(app.Stdout)
	app.Exit(exitOK)
	return err
}

// What the linker was told of the build, for one without a repository beside it:
// -X github.com/weir-proxy/weir/proxy/cli.version=v1.2.3. Empty if nothing.
var version, revision string

// A build is what a binary knows of its own making.
type build struct{ version, commit, golang string }

func (b build) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "weir %s (commit %s, %s)\n", b.version, b.commit, b.golang)
	return err
}

func readBuild() build {
	b := build{version: "(devel)", commit: "unknown", golang: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.golang = info.GoVersion
	if info.Main.Version != "" {
		b.version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.commit = s.Value
		}
	}
	b.version, b.commit = cmp.Or(version, b.version), cmp.Or(revision, b.commit)
	return b
}
