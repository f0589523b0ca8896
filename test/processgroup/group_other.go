//go:build !unix

package processgroup

import (
	"os/exec"
	"syscall"
)

// Lead does nothing: there are no process groups.
func Lead(*exec.Cmd) {}

// Signal kills cmd alone.
func Signal(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }
