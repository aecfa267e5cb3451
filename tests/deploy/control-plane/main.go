// Kubernetes' control plane in one program: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//
// The first argument chooses the program, all others are its own.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) > 1 {
		program := os.Args[1]
		if program == "etcd" {
			etcdmain.Main(os.Args[1:])
			return
		}
		if command, known := commands[program]; known {
			os.Args = os.Args[1:]
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "the first argument is etcd, kube-apiserver, kube-controller-manager or kube-scheduler")
	os.Exit(2)
}
