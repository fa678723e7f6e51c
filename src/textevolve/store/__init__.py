"""The store: all data that outlive the process, such as runs and the journal of model calls.

    from textevolve.store.repository import open_store

    async with open_store(settings.store) as store:
        run = store.find_run(fingerprint) or store.create_run(spec, fingerprint, name, source)
        with store.lease(run.id):
            if run.n_cases is None:
                store.add_cases(run.id, cases)
            model = Journalled(model, store.journal(run.id))
            ...
            store.finish_run(run.id, "finished")

A run consists of its cases and calls. Its results are recomputed from the journal when they are
shown, exported or resumed.
"""
