// Command lua prints a script as Redis runs it, see run:
//
//	go run ./limiter/redisstore/lua many gcra
//
// It reads the files of this folder, and is no part of Weir.
package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/scripts"
)

//go:embed *.lua */*.lua
var files embed.FS

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lua:", err)
		os.Exit(2)
	}
}

const usage = `usage: lua one|many ALGORITHM, lua FILE ALGORITHM..., lua redisson/FILE or lua redisson_window/FILE
FILE is a file of the folder command or redisson`

// run writes the script that args name.
func run(out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var algorithms uint16
	for _, name := range args[1:] {
		a, err := limiter.ParseAlgorithm(name)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, usage)
		}
		algorithms |= 1 << a
	}
	text, err := scripts.Source{Files: files, Channel: "weir:freed"}.Text(args[0], algorithms)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, usage)
	}
	_, err = io.WriteString(out, text)
	return err
}
