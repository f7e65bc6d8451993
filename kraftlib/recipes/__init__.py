"""The recipes that services import instead of ZooKeeper: elections, locks, maps, queues and the like.

    async with Recipes(access) as kraft:
        async with kraft.election("scheduler") as term:   # waits until it leads
            await run_jobs(fence=term.token)              # cancelled when it no longer does

`kraftlib.recipes.face` has `Recipes`, with a method for each recipe; `kraftlib.recipes.blocking` has the same for
threads. All of them are calls, questions and watches of the machine of `kraftlib.coordination`, over any `Access`.
"""
